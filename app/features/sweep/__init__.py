"""Sweeps: run after run of a project over settings and numbers of its drawing, chosen by Optuna; the best is named.

The page Sweep, a button and a strip on the page Runs, Sweep… in the Run menu, and `tapedeck sweep`. The study is a
journal of Optuna in the folder sweep-N among the runs; each run is stored with that tag and its settings as its name.
"""
