"""Compare an imported net with the live model that it was imported from."""
