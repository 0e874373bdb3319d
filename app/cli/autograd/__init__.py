"""`tapedeck autograd`: the graph of a network, a model or a snippet."""
