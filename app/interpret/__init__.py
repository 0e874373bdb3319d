"""What a trained net looks at: attention maps, attributions to its input, and the loss without a part of it."""
