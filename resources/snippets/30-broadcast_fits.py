"""Broadcasting: what fits is stretched.

Sizes are compared from the last dimension on: they fit if they are equal, if one of them is 1, or if one tensor has no
such dimension. Backward adds up the gradient over what was stretched, so it has the shape of the tensor again.
"""

x = torch.randn(5, 3, 4, 1, requires_grad=True)
y = torch.randn(3, 1, 7, requires_grad=True)

z = x + y
print(tuple(x.shape), "+", tuple(y.shape), "->", tuple(z.shape))
loss = z.sum()
loss.backward()
print("x.grad:", tuple(x.grad.shape), "each", x.grad.unique().tolist())
print("y.grad:", tuple(y.grad.shape), "each", y.grad.unique().tolist())
