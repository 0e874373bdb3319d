"""In-place: a value that backward needs is overwritten.

The derivative of sigmoid is computed from its result, so torch keeps h. add_ changes h where it lies: its version is 1,
the saved one was 0, and backward stops. `h = h + 1` or `h.clone()` before it would do.
"""

w = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
h = w.sigmoid()
print("saved at version", h._version)
h.add_(1)
print("now at version", h._version)
loss = h.sum()
loss.backward()
