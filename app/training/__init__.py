"""The training loop, its events and its control. Imports no Qt. Knows no Qt."""
