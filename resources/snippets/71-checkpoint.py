"""Checkpointing: recompute activations instead of saving them.

Both blocks compute the same values and gradients. The checkpointed one saves only its input, and runs its forward again
when backward needs the activations.
"""

from torch.utils.checkpoint import checkpoint

runs = 0


def block(x):
    global runs
    runs += 1
    return x.sin().exp().tanh()


x = torch.randn(1000, requires_grad=True)
plain = block(x).sum()
frugal = checkpoint(block, x, use_reentrant=False).sum()
print("forward passes before backward:", runs)

(expected,) = torch.autograd.grad(plain, x, retain_graph=True)
(found,) = torch.autograd.grad(frugal, x, retain_graph=True)
print("forward passes after backward: ", runs)
print("same gradient:", torch.equal(expected, found))
frugal
