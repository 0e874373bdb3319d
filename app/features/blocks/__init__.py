"""Blocks: several nodes as one, with parameters of its own, in the project or in a library."""
