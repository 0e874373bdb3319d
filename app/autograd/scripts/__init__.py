"""The graph of a step of the user's training script, recorded and described in the script's process."""
