"""The coach: at most one sentence and one button about a run, from what was measured of it; silence unless it is sure.

A line above the curves, and a line of `tapedeck train`. `judgement.judge` decides by rules in an order: what explains
another comes first. `compute.examine` looks at the data and at the trained net once a run has ended.
"""
