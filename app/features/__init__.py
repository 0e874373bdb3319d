"""The shelf: a folder for each thing that a person can do, found by what lies in it; without the folder all else works.

A file's name says what it is for and may import. `values.py` has requests, answers and what else travels: neither Qt
nor torch. `task.py` has handlers of requests, `compute.py` or `compute/` what they run: torch, no Qt. `NAME_command.py`
declares a command, `cli.py` or `cli/` carries it out. `run_report.py` is what `tapedeck train` says at its end: torch,
no Qt. `feature.py` declares pages and actions; it and every other file run in the window: Qt, and torch along no chain
of imports. `api.py` is all that other features may import.
"""
