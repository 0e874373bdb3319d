"""Files of layers of a person's own, beside the palette: added, looked at, trusted, removed."""
