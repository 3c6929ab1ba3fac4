"""Turns two traces into matched moments."""
