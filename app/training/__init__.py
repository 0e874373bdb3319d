"""The training loop and what it is told and tells. Knows no Qt."""
