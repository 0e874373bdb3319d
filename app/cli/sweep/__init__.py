"""`tapedeck sweep`: one run after the other over a grid, or a random draw, of settings."""
