"""Playground: what a net of two inputs says of each point of the plane, live during a run, and what its units say."""
