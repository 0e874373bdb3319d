"""no_grad, detach, .data: detached from the graph.

All three give the same numbers without a path back. no_grad records nothing inside its block; detach returns a tensor
that shares memory and version counter with the original; .data shares only the memory.
"""

x = torch.tensor([1.0, 2.0], requires_grad=True)
a = x * 3

with torch.no_grad():
    b = a * 2
c = a.detach() * 2
d = a.data * 2
e = a * 2
for name, one in (("no_grad", b), ("detach", c), (".data", d), ("nothing cut", e)):
    print(f"{name:12} requires_grad={one.requires_grad!s:5} grad_fn={one.grad_fn}")

loss = (a.detach() * a).sum()
loss.backward()
print("x.grad:", x.grad, "as if the detached factor were a constant")
