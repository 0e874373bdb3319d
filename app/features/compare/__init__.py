"""Two models side by side, or one in two modes: how their modules match, and the first layer that adds a difference.

The page Compare, and `tapedeck diff`. Both run forward and backward on the same batch; what rounding explains is not
reported. Runs, their steps, checkpoints and files of weights are compared too, and a model in another interpreter.
"""
