"""Graph breaks and recompiles of torch.compile, each with its line and a cure, and the time of a compiled call."""
