"""Finite differences, in float and in double.

(f(x + h) − f(x)) / h should approximate the gradient. In double precision it does; in single precision the difference
of two nearly equal numbers has hardly a correct digit. backward itself is accurate in both.
"""


def f(x):
    return (x.sin() * x.exp()).sum()


def errors(dtype, h):
    x = torch.linspace(0.5, 2.0, 7, dtype=dtype, requires_grad=True)
    (analytic,) = torch.autograd.grad(f(x), x)
    with torch.no_grad():
        steps = h * torch.eye(len(x), dtype=dtype)
        numeric = torch.stack([(f(x + step) - f(x)) / h for step in steps])
    x = x.detach().double()
    exact = (x.sin() + x.cos()) * x.exp()
    return [
        (found - exact).abs().max() / exact.abs().max() for found in (numeric, analytic)
    ]


h = 1e-6
numeric_float, analytic_float = errors(torch.float32, h)
numeric_double, analytic_double = errors(torch.float64, h)
print(f"float:  finite differences {numeric_float:.0e}, backward {analytic_float:.0e}")
print(
    f"double: finite differences {numeric_double:.0e}, backward {analytic_double:.0e}"
)

x = torch.linspace(0.5, 2.0, 7, dtype=torch.float64, requires_grad=True)
loss = f(x)
