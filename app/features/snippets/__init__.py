"""A few lines of PyTorch: run in a process of their own, with their output, named tensors, graphs and findings.

The page Snippet of the tab Autograd, and `tapedeck autograd FILE.py` or `FILE.py:FUNCTION`.
"""
