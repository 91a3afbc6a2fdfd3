import copy
import math
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim

import draws

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
device = torch.device(
    "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
)
BATCH_SIZE, GAMMA, EPS_START, EPS_END, EPS_DECAY, TAU, LR = 8, 0.9, 0.9, 0.05, 50, 0.05, 1e-2
random.seed(3)


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)

    def __len__(self):
        return len(self.memory)


class DQN(nn.Module):
    def __init__(self, n_observations, n_actions):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 16)
        self.layer2 = nn.Linear(16, n_actions)

    def forward(self, x):
        return self.layer2(torch.relu(self.layer1(x)))


policy_net = draws.init_(DQN(2, 3)).to(device)
target_net = DQN(2, 3).to(device)
target_net.load_state_dict(policy_net.state_dict())
optimizer = optim.AdamW(policy_net.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(1000)
steps_done = 0


def select_action(state):
    global steps_done
    sample = random.random()
    eps_threshold = EPS_END + (EPS_START - EPS_END) * math.exp(-1.0 * steps_done / EPS_DECAY)
    steps_done += 1
    if sample > eps_threshold:
        with torch.no_grad():
            return policy_net(state).max(1).indices.view(1, 1)
    return torch.tensor([[random.randrange(3)]], device=device, dtype=torch.long)


def optimize_model():
    if len(memory) < BATCH_SIZE:
        return None
    batch = Transition(*zip(*memory.sample(BATCH_SIZE)))
    non_final_mask = torch.tensor(
        tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=torch.bool
    )
    non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
    state_batch = torch.cat(batch.state)
    action_batch = torch.cat(batch.action)
    reward_batch = torch.cat(batch.reward)
    state_action_values = policy_net(state_batch).gather(1, action_batch)
    next_state_values = torch.zeros(BATCH_SIZE, device=device)
    with torch.no_grad():
        next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
    expected = (next_state_values * GAMMA) + reward_batch
    loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)
    optimizer.step()
    return loss.item()


def act(x, v, a):
    """A point on a line that is pushed left, right or not; it should be near 0."""
    v = 0.9 * v + 0.1 * (a - 1)
    x = x + v
    return x, v, 1.0 - abs(x), abs(x) > 2


for i_episode in range(5):
    x, v, losses, total = 0.5, 0.0, [], 0.0
    for t in range(8):
        state = torch.tensor([x, v], dtype=torch.float32, device=device).unsqueeze(0)
        action = select_action(state)
        x, v, reward, terminated = act(x, v, action.item())
        total += reward
        nxt = (
            None if terminated or t == 7 else torch.tensor([x, v], dtype=torch.float32).unsqueeze(0)
        )
        memory.push(state, action, nxt, torch.tensor([reward], device=device))
        loss = optimize_model()
        if loss is not None:
            losses.append(loss)
        target_sd, policy_sd = target_net.state_dict(), policy_net.state_dict()
        for key in policy_sd:
            target_sd[key] = policy_sd[key] * TAU + target_sd[key] * (1 - TAU)
        target_net.load_state_dict(target_sd)
    print(f"episode {i_episode}: return {total:.4f}", "loss", [round(l, 5) for l in losses[-2:]])
frozen = copy.deepcopy(policy_net).eval()
print(
    f"{(frozen(torch.zeros(1, 2)) - target_net(torch.zeros(1, 2))).abs().max().item():.5f}",
    np.float32(1),
)
