"""The Autograd tab: the folded grad_fn graph of one batch and what its nodes keep for backward."""
