"""The graph of a step of somebody's own training script, recorded and described in the script's process."""
