"""Edits of the drawing applied to a paused run."""
