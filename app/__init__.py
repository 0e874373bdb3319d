"""Tapedeck: assemble a network, train it, look inside its autograd graph, take the code away."""

__version__ = "0.1.0"
