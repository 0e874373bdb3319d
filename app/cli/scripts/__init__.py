"""`tapedeck run`: a script of the person's own, in its own process, and a step of it that is written to a file."""
