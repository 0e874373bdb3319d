"""The page "Problems": what keeps the net from running, with its cures."""
