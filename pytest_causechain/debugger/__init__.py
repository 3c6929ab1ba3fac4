"""A living gdb that runs a program to a moment and tells what is there."""
