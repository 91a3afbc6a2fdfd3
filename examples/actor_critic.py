import random
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

import draws

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)


class Grid:
    """A 3x3 grid: start in a corner, the goal is the opposite one."""

    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]

    def reset(self):
        self.at, self.steps = (0, 0), 0
        return self.state()

    def state(self):
        return np.array([self.at[0] / 2, self.at[1] / 2, 1.0])

    def step(self, action):
        dx, dy = self.moves[action]
        self.at = (min(max(self.at[0] + dx, 0), 2), min(max(self.at[1] + dy, 0), 2))
        self.steps += 1
        done = self.at == (2, 2)
        return self.state(), (10.0 if done else -1.0), done or self.steps >= 20


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(3, 32)
        self.action_head = nn.Linear(32, 4)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        action_prob = F.softmax(self.action_head(x), dim=-1)
        return action_prob, self.value_head(x)


model = draws.init_(ActorCritic())
optimizer = optim.Adam(model.parameters(), lr=3e-3)
device = next(model.parameters()).device

env = Grid()
for episode in range(5):
    state = env.reset()
    done = False
    entropies = []
    while not done:
        probs, value = model(torch.tensor(state, dtype=torch.float32, device=device))
        dist = Categorical(probs=probs)
        action = draws.multinomial(probs.unsqueeze(0))[0]
        entropies.append(dist.entropy())
        model.saved_actions.append(SavedAction(dist.log_prob(action), value))
        state, reward, done = env.step(action.item())
        model.rewards.append(reward)

    R, returns = 0, []
    for r in reversed(model.rewards):
        R = r + 0.95 * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    policy_losses, value_losses = [], []
    for (log_prob, value), R in zip(model.saved_actions, returns):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = (
        torch.stack(policy_losses).sum()
        + torch.stack(value_losses).sum()
        - 0.01 * torch.stack(entropies).mean()
    )
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
    print(
        f"episode {episode}: steps {len(model.rewards)}, return {sum(model.rewards):.1f}, loss {loss.item():.5f}"
    )
    del model.rewards[:]
    del model.saved_actions[:]
