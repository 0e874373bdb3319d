"""Sweeps: run after run of a project over a grid, or a random draw, of settings; the best is named at the end.

A button and a strip on the page Runs, Sweep… in the Run menu, and `tapedeck sweep`. All runs are checked before the
first begins; each is stored with the tag sweep-N and its settings as its name.
"""
