"""Whether a training step fits into a limit of memory, and which changes of the settings make it fit: `tapedeck fit`.

Each plan is measured by a step of it; nothing is promised from a formula.
"""
