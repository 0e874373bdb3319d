"""In-place: a saved tensor is overwritten.

The derivative of sigmoid is computed from its result, so torch saves h. add_ modifies h in-place: its version is 1, the
saved one was 0, and backward raises an error. Use `h = h + 1`, or `h.clone()` before add_.
"""

w = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
h = w.sigmoid()
print("saved at version", h._version)
h.add_(1)
print("now at version", h._version)
loss = h.sum()
loss.backward()
