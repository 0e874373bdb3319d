"""Double backward: the gradient of a gradient.

With create_graph=True the backward pass is recorded as well, so its result has a grad_fn and can be differentiated
again.
"""

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = (x**3).sum()
(first,) = torch.autograd.grad(y, x, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), x, retain_graph=True)
print("3x²:", first)
print("6x: ", second)
first
