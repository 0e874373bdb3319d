"""Numbers of layers from a file, as an overlay of the canvas and on the picture of an opened model."""
