import math

import torch
from torch.autograd import Function, gradcheck
from torch.autograd.function import once_differentiable

import draws


class LegendrePolynomial3(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.levels = levels
        return torch.round(x * levels) / levels

    @staticmethod
    def backward(ctx, g):
        return g, None


class GradReverse(Function):
    @staticmethod
    def forward(ctx, x, lambd):
        ctx.lambd = lambd
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.lambd, None


class LinearFunction(Function):
    @staticmethod
    def forward(ctx, input, weight, bias=None):
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_output):
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


x = torch.linspace(-math.pi, math.pi, 200)
y = torch.sin(x)
a = torch.full((), 0.0, requires_grad=True)
b = torch.full((), -1.0, requires_grad=True)
c = torch.full((), 0.0, requires_grad=True)
d = torch.full((), 0.3, requires_grad=True)
learning_rate = 5e-5
for t in range(10):
    P3 = LegendrePolynomial3.apply
    y_pred = a + b * P3(c + d * x)
    loss = (y_pred - y).pow(2).sum()
    if t % 2 == 1:
        print(t, f"{loss.item():.5f}")
    loss.backward()
    with torch.no_grad():
        for p in (a, b, c, d):
            p -= learning_rate * p.grad
            p.grad = None
print(f"Result: y = {a.item():.5f} + {b.item():.5f} * P3({c.item():.5f} + {d.item():.5f} x)")

v = draws.rand(5).requires_grad_()
out = StraightThrough.apply(v, 4)
out.sum().backward()
print([round(t, 2) for t in out.tolist()], v.grad.tolist())
w = draws.randn(3).requires_grad_()
(GradReverse.apply(w, 0.5) * torch.arange(3.0)).sum().backward()
print(w.grad.tolist())
args = (
    draws.randn(4, 3).double().requires_grad_(),
    draws.randn(2, 3).double().requires_grad_(),
    draws.randn(2).double().requires_grad_(),
)
print(gradcheck(LinearFunction.apply, args, eps=1e-6, atol=1e-4))
