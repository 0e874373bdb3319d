"""gradcheck finds a wrong backward.

The derivative of x³ is 3x², and this backward omits the 3. The error shows the Jacobian by finite differences beside
the one of backward.
"""

from torch.autograd import Function, gradcheck


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x**2


x = torch.tensor([1.0, 2.0], dtype=torch.double, requires_grad=True)
y = Cube.apply(x)
gradcheck(Cube.apply, (x,))
