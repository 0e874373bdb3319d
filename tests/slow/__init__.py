"""Long checks that print a table: `python -m tests.slow.<name>`; exit 1 on a fault. The suite has short forms."""
