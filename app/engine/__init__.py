"""Runs beyond this process: in a child process, on several processes, and elsewhere."""
