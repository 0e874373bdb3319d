"""Replace the net of a run: layers that stay keep their weights and optimizer state."""
