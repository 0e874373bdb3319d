"""The JSON lines of runs in other processes: the frames that they are, and the events that these become."""
