"""Control flow: a new graph each time.

What runs is what is recorded. The loop doubles x until its norm is 20 or more, so how long the graph is depends on the
data, and each iteration makes one of its own. Leaves have no grad_fn.
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
