import torch
import torch.nn as nn

import draws


class ODEFunc(nn.Module):
    def __init__(self):
        super(ODEFunc, self).__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                m.weight.data = draws.randn(*m.weight.shape) * 0.1
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


def rk4_step(f, t, dt, y):
    k1 = f(t, y)
    k2 = f(t + dt / 2, y + dt / 2 * k1)
    k3 = f(t + dt / 2, y + dt / 2 * k2)
    k4 = f(t + dt, y + dt * k3)
    return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def odeint(f, y0, t):
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        ys.append(rk4_step(f, t0, t1 - t0, ys[-1]))
    return torch.stack(ys)


true_y0 = torch.tensor([[2.0, 0.0]])
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
t = torch.linspace(0.0, 2.0, 21)


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y**3, true_A)


with torch.no_grad():
    true_y = odeint(Lambda(), true_y0, t)
print(true_y.shape, f"{true_y[-1].norm().item():.5f}")
func = ODEFunc()
optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-3)
for itr in range(5):
    s = draws.randint(0, 16, (5,))
    batch_y0 = true_y[s]
    batch_t = t[:5]
    batch_y = torch.stack([true_y[s + i] for i in range(5)], dim=0)
    optimizer.zero_grad()
    pred_y = odeint(func, batch_y0, batch_t)
    loss = torch.mean(torch.abs(pred_y - batch_y))
    loss.backward()
    optimizer.step()
    print("Iter {:04d} | Total Loss {:.6f}".format(itr, loss.item()))
