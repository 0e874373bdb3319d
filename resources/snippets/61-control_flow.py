"""Control flow: a new graph for each pass.

Autograd records the operations that run. The loop doubles x until its norm is at least 20, so the length of the graph
depends on the data, and each pass builds a new one. Leaves have no grad_fn.
"""


def length(node):
    below = [child for child, _ in node.next_functions if child is not None]
    return 1 + max(map(length, below), default=0)


w = torch.ones(3, requires_grad=True)
print("w.grad_fn:", w.grad_fn)
for scale in (1.0, 4.0):
    y = w * scale
    while y.norm() < 20:
        y = y * 2
    print(f"from {scale}: {length(y.grad_fn)} nodes to the leaf")
loss = y.sum()
