"""requires_grad propagates.

A result requires a gradient as soon as one of its inputs does. `a` comes from x and y, which do not, so torch records
nothing for it; `b` has z as an input and gets a grad_fn.
"""

x = torch.randn(5, 5)
y = torch.randn(5, 5)
z = torch.randn(5, 5, requires_grad=True)

a = x + y
b = a + z
print("a:", a.requires_grad, a.grad_fn)
print("b:", b.requires_grad, b.grad_fn)
b
