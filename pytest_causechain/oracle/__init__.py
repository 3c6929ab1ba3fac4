"""Observations in, outcomes out: the failing test itself tells its failure from any other."""
