"""One traced process: its threads, registers and memory, its instructions, what it executes and what is altered."""
