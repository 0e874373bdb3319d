"""In-place: a leaf that requires a gradient.

Gradients are accumulated in leaves. If one were modified in-place while torch records, it would become a non-leaf
result, so torch raises an error. Weights are updated under torch.no_grad(), as optimizers do.
"""

w = torch.ones(3, requires_grad=True)
with torch.no_grad():
    w -= 0.1
print("under no_grad:", w, "at version", w._version)

loss = (w**2).sum()
w -= 0.1
