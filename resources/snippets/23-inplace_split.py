"""In-place: one of several views.

unbind returns several views of one tensor at once. If one were modified in-place, the others would need new grad_fns
as well, so torch raises an error. Index the rows one by one, or clone the one to modify.
"""

x = torch.ones(2, 3, requires_grad=True)
b = x * 2
first, second = b.unbind(0)
loss = b.sum()
first.mul_(10)
