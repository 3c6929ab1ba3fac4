"""Turns a chain into what people and tools read; imports only the model."""
