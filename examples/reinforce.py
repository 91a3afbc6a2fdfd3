import argparse
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

import draws

parser = argparse.ArgumentParser(description="REINFORCE on a small corridor")
parser.add_argument(
    "--gamma", type=float, default=0.99, metavar="G", help="discount factor (default: 0.99)"
)
parser.add_argument("--episodes", type=int, default=6)
args = parser.parse_args()


class Corridor:
    """Walk from the middle of a corridor to its right end; each step costs."""

    def __init__(self, length=7):
        self.length = length

    def reset(self):
        self.position = self.length // 2
        return self._state()

    def _state(self):
        state = np.zeros(self.length, dtype=np.float32)
        state[self.position] = 1
        return state

    def step(self, action):
        self.position += 1 if action == 1 else -1
        done = self.position in (0, self.length - 1)
        reward = 1.0 if self.position == self.length - 1 else -0.1
        return self._state(), reward, done, {}


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(7, 16)
        self.dropout = nn.Dropout(p=0.0)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = self.dropout(self.affine1(x))
        action_scores = self.affine2(F.relu(x))
        return F.softmax(action_scores, dim=1)


policy = draws.init_(Policy())
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
eps = np.finfo(np.float32).eps.item()
env = Corridor()


def select_action(state):
    state = torch.from_numpy(state).float().unsqueeze(0)
    probs = policy(state)
    m = Categorical(probs)
    action = draws.multinomial(m.probs)
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item(), m.entropy().item()


def finish_episode():
    R = 0
    policy_loss = []
    returns = deque()
    for r in policy.rewards[::-1]:
        R = r + args.gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return policy_loss


running_reward = 0
for i_episode in range(args.episodes):
    state, ep_reward = env.reset(), 0
    for t in range(1, 50):
        action, entropy = select_action(state)
        state, reward, done, _ = env.step(action)
        policy.rewards.append(reward)
        ep_reward += reward
        if done:
            break
    running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
    loss = finish_episode()
    print(
        "Episode {}\tsteps {}\treward: {:.2f}\taverage: {:.2f}\tloss: {:.5f}\tentropy: {:.5f}".format(
            i_episode, t, ep_reward, running_reward, loss.item(), entropy
        )
    )
