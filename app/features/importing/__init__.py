"""A model of code as a drawn network: traced, drawn as layers and wires, and compared with the live model.

The dialogs that import and redraw, and `tapedeck import`. `compute` follows the calls; here a process of
its own makes the model, compares the drawing with it, and chooses parts that stay one node of their class.
"""
