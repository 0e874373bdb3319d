"""In-place: modifying a view rewrites the graph of its base.

`row` is a view of `b`. Modifying the row modifies b as well, so torch gives b another grad_fn: CopySlices replaces the
old one.
"""

x = torch.ones(2, 3, requires_grad=True)
b = x * 2
print("b was made by", b.grad_fn.name())
row = b[0]
row.mul_(10)
print("b is made by ", b.grad_fn.name())
loss = b.sum()
loss.backward()
print(x.grad)
