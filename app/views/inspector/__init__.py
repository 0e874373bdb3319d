"""The Inspector: what is selected, and everything of it that can be set."""
