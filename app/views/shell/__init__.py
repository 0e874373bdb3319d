"""The window's own feature: undo, theme, help, and start-up errors."""
