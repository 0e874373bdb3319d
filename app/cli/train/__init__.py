"""`tapedeck train`: a run without a window."""
