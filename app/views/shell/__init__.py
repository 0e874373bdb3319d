"""What belongs to the window itself: undo, theme, help, and words about the program."""
