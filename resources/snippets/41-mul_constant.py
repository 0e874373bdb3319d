"""A custom Function: multiplication by a constant.

The constant is no tensor, so it is stored on ctx instead of being saved, and backward returns None for it.
"""

from torch.autograd import Function, gradcheck


class MulConstant(Function):
    @staticmethod
    def forward(ctx, x, constant):
        ctx.constant = constant
        return x * constant

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.constant, None


x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
y = MulConstant.apply(x, 5.5)
y.sum().backward()
print("x.grad:", x.grad)

double = torch.randn(6, dtype=torch.double, requires_grad=True)
print("gradcheck:", gradcheck(MulConstant.apply, (double, 5.5)))
y
