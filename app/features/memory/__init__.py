"""Memory and time of a training step: estimated for the drawing, measured between two steps of a run, by layer.

Two commands of the Run menu, each with a dialog. What a run is asked for is measured in `app/training/monitoring`.
"""
