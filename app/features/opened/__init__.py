"""Any model that runs, drawn from one forward pass and kept as it is: a project that trains it by its own code.

The page Model, `tapedeck open` and `tapedeck draw`. Its observation, its capture and its training are the kernel's.
"""
