"""What this package adds to Tapedeck: each file says by its name what it is."""
