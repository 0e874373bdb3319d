"""Broadcasting: compatible shapes are expanded.

Sizes are compared from the last dimension: they are compatible if they are equal, if one of them is 1, or if one tensor
has no such dimension. Backward sums the gradient over expanded dimensions, so it has the tensor's shape again.
"""

x = torch.randn(5, 3, 4, 1, requires_grad=True)
y = torch.randn(3, 1, 7, requires_grad=True)

z = x + y
print(tuple(x.shape), "+", tuple(y.shape), "->", tuple(z.shape))
loss = z.sum()
loss.backward()
print("x.grad:", tuple(x.grad.shape), "each", x.grad.unique().tolist())
print("y.grad:", tuple(y.grad.shape), "each", y.grad.unique().tolist())
