import math

import torch
import torch.nn as nn
from torch.distributions import Normal, kl_divergence

import draws


class MDN(nn.Module):
    def __init__(self, n_hidden, n_gaussians):
        super(MDN, self).__init__()
        self.z_h = nn.Sequential(nn.Linear(1, n_hidden), nn.Tanh())
        self.z_pi = nn.Linear(n_hidden, n_gaussians)
        self.z_mu = nn.Linear(n_hidden, n_gaussians)
        self.z_sigma = nn.Linear(n_hidden, n_gaussians)

    def forward(self, x):
        z_h = self.z_h(x)
        log_pi = nn.functional.log_softmax(self.z_pi(z_h), -1)
        return log_pi, self.z_mu(z_h), nn.functional.softplus(self.z_sigma(z_h)) + 1e-3


def mdn_loss_fn(log_pi, mu, sigma, y):
    log_prob = Normal(mu, sigma).log_prob(y)
    return -torch.logsumexp(log_pi + log_prob, dim=1).mean()


n = 64
y = (draws.rand(n, 1) * 2 - 1) * 5
x = 7 * torch.sin(0.75 * y) + 0.5 * y + draws.randn(n, 1)
model = draws.init_(MDN(20, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(6):
    log_pi, mu, sigma = model(x)
    loss = mdn_loss_fn(log_pi, mu, sigma, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, round(loss.item(), 5))

log_pi, mu, sigma = model(torch.linspace(-10, 10, 4).unsqueeze(1))
k = draws.multinomial(log_pi.exp())
picked = torch.gather(mu, 1, k.unsqueeze(1)).squeeze(1)
print([round(v, 4) for v in picked.tolist()])

# the same density by hand, and a divergence
by_hand = -((y - 1.0) ** 2) / (2 * 0.5**2) - math.log(0.5) - 0.5 * math.log(2 * math.pi)
print(torch.allclose(Normal(1.0, 0.5).log_prob(y), by_hand, atol=1e-4))
p, q = Normal(torch.zeros(3), torch.ones(3)), Normal(torch.arange(3.0), torch.ones(3) * 2)
print(
    [round(v, 5) for v in kl_divergence(p, q).tolist()],
    f"{p.entropy().sum().item():.5f}",
    q.mean.tolist(),
)
