"""Trials before a run: a dry run on synthetic data, a learning rate range test, and overfitting one batch.

Commands of the Run menu, links in the training form, and `tapedeck try`, which also measures memory and time of a step.
"""
