"""Version counters.

Every in-place operation increments a tensor's _version, which views share with their base. A tensor is saved for
backward with its version, so a later modification is detected. One through .data is not counted, and the gradient is
silently wrong: detach() would have counted it.
"""

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
a = w * 1
a.mul_(2)
a[0] = 5
print("two changes:", a._version)
view = a[1:]
view.add_(1)
print("one more, through a view:", a._version, view._version)

loss = (a**2).sum()
saved_at = a._version
a.data.zero_()
print("through .data:", a._version == saved_at)
loss.backward()
print("w.grad is wrong:", w.grad)

c = w * 1
squared = (c**2).sum()
c.detach().zero_()
print("through detach():", c._version)
try:
    squared.backward()
except RuntimeError as error:
    print("so backward stops:", str(error).partition(":")[0])
