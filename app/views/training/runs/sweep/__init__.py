"""A sweep in the window: its dialog, its runs one after the other, and how far it is."""
