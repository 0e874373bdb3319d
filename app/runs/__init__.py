"""Runs that are kept: what they were started with, what they told, their checkpoints, how they ended. No Qt here."""
