"""Capture the autograd graph of one batch, diagnose it, play its backward pass and draw it. Imports no Qt."""
