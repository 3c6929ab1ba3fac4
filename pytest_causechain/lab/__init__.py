"""Runs experiments: a configuration in, an observation out."""
