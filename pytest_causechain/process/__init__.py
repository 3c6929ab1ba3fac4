"""A command line becomes a traced process: breakpoints, templates, forked copies, memory, limits (x86-64 Linux)."""
