"""Runs elsewhere: their lines read, and a script under `tapedeck run` commanded."""
