"""Edits of the drawing applied to a paused run: what becomes of each layer is shown before.

A command of the Run menu. Weights and moments of the layers that stay are kept; how a run changes its net is in
`app.training.surgery`.
"""
