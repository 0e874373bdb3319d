"""gradcheck: the gradients of backward beside finite differences, in float64 and in float32.

Of the whole network, a layer, a backward node or a function: a page of Findings and two commands of the Autograd menu,
a section of the inspector, and `tapedeck autograd --gradcheck`.
"""
