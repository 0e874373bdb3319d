"""Vector-Jacobian product: backward from a non-scalar output.

backward computes vᵀJ for a vector v of the output's shape. For a scalar, v defaults to 1; for anything larger it must
be passed. Here it is compared with the full Jacobian.
"""


def f(x):
    return torch.stack([x.prod(), x.sum() ** 2])


x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = f(x)
v = torch.tensor([1.0, 0.1])

y.backward(v, retain_graph=True)
print("x.grad  =", x.grad)

jacobian = torch.autograd.functional.jacobian(f, x)
print("v @ J   =", v @ jacobian)
y
