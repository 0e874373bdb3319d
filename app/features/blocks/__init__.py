"""Blocks: several nodes reused as one submodule with its own parameters, in the project or in a library."""
