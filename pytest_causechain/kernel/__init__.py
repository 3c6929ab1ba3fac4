"""What Linux says and does: system calls, ELF files, processes in /proc, processes of our own beside us."""
