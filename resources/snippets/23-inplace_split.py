"""In-place: one of several views.

unbind gives several views of one tensor at once. Were one changed in place, the others would have to get new creators
as well, so torch refuses. Index the rows one by one, or clone the one that is to change.
"""

x = torch.ones(2, 3, requires_grad=True)
b = x * 2
first, second = b.unbind(0)
loss = b.sum()
first.mul_(10)
