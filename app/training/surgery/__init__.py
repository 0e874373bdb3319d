"""Another net in a run: its layers and the moments of its optimizer go on where they stay."""
