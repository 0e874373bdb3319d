"""A step of a stored run again: recomputed from the nearest checkpoint, verified by the hashes that the run recorded.

The timeline below the charts chooses the step that all pages show; its graph opens on the page Autograd, its
activations on the page Layer. The first step at which a condition held is found, and a run is forked without the batch
of a step. Also `tapedeck revisit`.
"""
