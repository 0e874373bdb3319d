"""Where the samples come from. Knows no Qt."""
