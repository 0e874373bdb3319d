"""Custom layer files below the palette: added, reviewed, trusted, removed."""
