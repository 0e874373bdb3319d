"""Models observed while they run: whatever a forward pass calls, as plain data, without redrawing it."""
