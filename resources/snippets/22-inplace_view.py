"""In-place: the graph is written anew for everybody who shares the memory.

`row` is a view of `b`. Changing the row changes b as well, so torch gives b another creator: CopySlices takes the place
of its old grad_fn.
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
