"""Data sources, readers, splits and transforms. Imports no Qt. Knows no Qt."""
