"""A GAN that learns a normal distribution: two optimizers, and detach."""

import torch
import torch.nn as nn
import torch.optim as optim
from torch.autograd import Variable

import draws

data_mean, data_stddev = 4.0, 1.25
minibatch_size, d_steps, g_steps = 32, 2, 1
cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor


class Generator(nn.Module):
    def __init__(self, input_size, hidden_size, output_size, f):
        super(Generator, self).__init__()
        self.map1 = nn.Linear(input_size, hidden_size)
        self.map2 = nn.Linear(hidden_size, hidden_size)
        self.map3 = nn.Linear(hidden_size, output_size)
        self.f = f

    def forward(self, x):
        return self.map3(self.f(self.map2(self.f(self.map1(x)))))


class Discriminator(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(input_size, hidden_size),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(hidden_size, hidden_size),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(hidden_size, output_size),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.model(x)


def weights_init_normal(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1:
        m.bias.data.fill_(0.01)


G = draws.init_(Generator(1, 16, 1, torch.tanh)).apply(weights_init_normal)
D = draws.init_(Discriminator(4, 16, 1)).apply(weights_init_normal)
criterion = nn.BCELoss()
d_optimizer = optim.SGD(D.parameters(), lr=1e-2, momentum=0.9)
g_optimizer = optim.Adam(G.parameters(), lr=1e-2, betas=(0.5, 0.999))
valid = Variable(Tensor(minibatch_size, 1).fill_(1.0), requires_grad=False)
fake = Variable(Tensor(minibatch_size, 1).fill_(0.0), requires_grad=False)


def moments(d):
    mean = torch.mean(d, 1, keepdim=True)
    diffs = d - mean
    std = torch.pow(torch.mean(torch.pow(diffs, 2.0), 1, keepdim=True), 0.5)
    zscores = diffs / std
    skews = torch.mean(torch.pow(zscores, 3.0), 1, keepdim=True)
    kurtoses = torch.mean(torch.pow(zscores, 4.0), 1, keepdim=True) - 3.0
    return torch.cat((mean, std, skews, kurtoses), dim=1)


for epoch in range(5):
    for d_index in range(d_steps):
        D.zero_grad()
        d_real = Variable(draws.randn(minibatch_size, 8) * data_stddev + data_mean)
        d_real_error = criterion(D(moments(d_real)), valid)
        d_real_error.backward()
        d_gen = Variable(draws.rand(minibatch_size * 8, 1))
        d_fake_data = G(d_gen).detach().view(minibatch_size, 8)
        d_fake_error = criterion(D(moments(d_fake_data)), fake)
        d_fake_error.backward()
        d_optimizer.step()
    for g_index in range(g_steps):
        G.zero_grad()
        gen_input = Variable(draws.rand(minibatch_size * 8, 1).type(Tensor))
        g_fake_data = G(gen_input).view(minibatch_size, 8)
        g_error = criterion(D(moments(g_fake_data)), valid)
        g_error.backward()
        g_optimizer.step()
    dre, dfe = d_real_error.data.item(), d_fake_error.data.item()
    print(
        "Epoch %s: D (%.6f real_err, %.6f fake_err) G (%.6f err); Real Dist (%.3f) Fake Dist (%.3f)"
        % (epoch, dre, dfe, g_error.data.item(), d_real.mean().item(), d_fake_data.mean().item())
    )
