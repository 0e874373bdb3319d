"""A custom Function: a linear layer.

forward saves what backward needs; backward returns one gradient for each argument of forward, and
ctx.needs_input_grad tells which of them are required. gradcheck compares it with finite differences, in double.
"""

from torch.autograd import Function, gradcheck


class LinearFunction(Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        y = x @ weight.T
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        if grad.dtype == torch.float:  # gradcheck asks many times, in double
            print("needs_input_grad:", ctx.needs_input_grad)
        grad_x = grad @ weight if needs_x else None
        grad_weight = grad.T @ x if needs_weight else None
        grad_bias = grad.sum(0) if ctx.has_bias and needs_bias else None
        return grad_x, grad_weight, grad_bias


x = torch.randn(4, 3)
weight = torch.randn(2, 3, requires_grad=True)
bias = torch.randn(2, requires_grad=True)
y = LinearFunction.apply(x, weight, bias)
loss = y.sum()
loss.backward()
print("x.grad:", x.grad, " bias.grad:", bias.grad)

double = [part.detach().double().requires_grad_() for part in (x, weight, bias)]
passed = gradcheck(LinearFunction.apply, double)
print("gradcheck:", passed)
