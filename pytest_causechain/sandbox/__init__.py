"""Starts and copies the program under test where it can harm nothing: views, limits, private files."""
