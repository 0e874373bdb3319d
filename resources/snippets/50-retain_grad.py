"""retain_grad: the gradient of an intermediate result.

After backward only leaves have a .grad. Call retain_grad() on an intermediate result before backward to keep its own.
"""

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor([0.5, -0.5, 1.0], requires_grad=True)
b = torch.tensor(0.1, requires_grad=True)

u = x * w
v = u + b
u.retain_grad()
loss = v.pow(2).sum()
loss.backward()
print("u.grad:", u.grad)
print("w.grad:", w.grad, "which is u.grad * x")
