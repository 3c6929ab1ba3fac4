"""A living gdb that tells what a program consists of, and what is there in a stopped process of it."""
