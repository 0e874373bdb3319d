"""Stored runs: settings, history, checkpoints and results. No Qt here."""
