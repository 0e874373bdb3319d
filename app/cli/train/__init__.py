"""`tapedeck train` and `tapedeck try`: a run without a window, and what is tried before one."""
