"""Weights of a file in the drawn net: looked at, kept as start weights, saved, and the last layer replaced."""
