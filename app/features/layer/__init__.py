"""One layer over the steps of a run: the page "Layer".

How its values are spread and how far each step moves its weights, checks of its health, and its activations and filters
for a sample: of a run that goes on, of a step that was recomputed, or of the newest weights.
"""
