"""Places: machines behind ssh on which scripts run, watched and steered from here.

`tapedeck places`, `tapedeck run --on PLACE train.py`, and the window on `tapedeck PLACE:path/frames.jsonl`. A line to a
place (`line.py`) is the system's ssh and `tapedeck.place` at its far end; `mirror.py` copies the frames of a script
there into a folder here, where the window reads and commands it as it does any script of this machine.
"""
