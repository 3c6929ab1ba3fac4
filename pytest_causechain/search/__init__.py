"""Turns an experiment function into a cause (dd), and causes at moments into transitions (cts); pure, no I/O."""
