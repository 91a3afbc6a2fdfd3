import torch

from draws import randn

# y = X w + b with a little noise
true_w = torch.tensor([[2.0], [-3.4], [0.5]])
true_b = 4.2
X = randn(100, 3)
y = torch.mm(X, true_w) + true_b + 0.01 * randn(100, 1)

w = torch.zeros(3, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
lr = 0.1

for epoch in range(5):
    y_hat = X.mm(w) + b
    loss = ((y_hat - y) ** 2).mean()
    loss.backward()
    w.data -= lr * w.grad
    b.data -= lr * b.grad.data
    w.grad.data.zero_()
    b.grad.zero_()
    print("epoch: {}, loss: {:.6f}".format(epoch, loss.item()))

with torch.no_grad():
    for step in range(100):
        y_hat = X @ w + b
        gw = 2 * X.t() @ (y_hat - y) / len(X)
        gb = 2 * (y_hat - y).mean()
        w -= lr * gw
        b -= lr * gb

print("w:", [round(v, 2) for v in w.view(-1).tolist()], "b: %.2f" % b.item())
print("error of w:", f"{(w - true_w).norm():.4f}")
print(w.shape, b.size(), y_hat.size(0), X.dtype)

# the same by least squares
A = torch.cat([X, torch.ones(100, 1)], dim=1)
normal = A.T @ A
print("diagonal:", [round(v, 1) for v in torch.diag(normal).tolist()])
