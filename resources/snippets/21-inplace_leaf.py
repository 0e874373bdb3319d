"""In-place: a leaf that requires a gradient.

A leaf is where gradients are collected. Were it changed in place while torch records, it would be a result and no leaf
any more, so torch refuses. Weights are updated under torch.no_grad(), as an optimizer does.
"""

w = torch.ones(3, requires_grad=True)
with torch.no_grad():
    w -= 0.1
print("under no_grad:", w, "at version", w._version)

loss = (w**2).sum()
w -= 0.1
