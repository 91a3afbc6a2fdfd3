import torch.nn as nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    CyclicLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

import draws

model = draws.init_(nn.Linear(3, 1))
x, y = draws.randn(16, 3), draws.randn(16, 1)
makers = {
    "step": lambda o: StepLR(o, step_size=2, gamma=0.1),
    "multistep": lambda o: MultiStepLR(o, milestones=[2, 4], gamma=0.5),
    "exponential": lambda o: ExponentialLR(o, 0.9),
    "cosine": lambda o: CosineAnnealingLR(o, T_max=6, eta_min=1e-4),
    "restarts": lambda o: CosineAnnealingWarmRestarts(o, T_0=2, T_mult=2),
    "lambda": lambda o: LambdaLR(o, lr_lambda=lambda epoch: 0.95**epoch),
    "polynomial": lambda o: PolynomialLR(o, total_iters=4, power=2.0),
    "one cycle": lambda o: OneCycleLR(o, max_lr=0.2, total_steps=8),
    "cyclic": lambda o: CyclicLR(o, base_lr=0.01, max_lr=0.1, step_size_up=2, cycle_momentum=False),
    "warm-up": lambda o: SequentialLR(
        o,
        schedulers=[LinearLR(o, start_factor=0.1, total_iters=2), CosineAnnealingLR(o, T_max=4)],
        milestones=[2],
    ),
}
for name, make in makers.items():
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    rates = []
    for epoch in range(6):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        rates.append(round(optimizer.param_groups[0]["lr"], 6))
        scheduler.step()
    print(f"{name:12s} loss {loss.item():.6f} last {scheduler.get_last_lr()[0]:.6f}", rates)

optimizer = Adam(model.parameters(), lr=0.1)
plateau = ReduceLROnPlateau(optimizer, mode="min", factor=0.1, patience=1)
for value in [1.0, 0.9, 0.95, 0.93, 0.92, 0.91]:
    plateau.step(value)
    print(value, optimizer.param_groups[0]["lr"])

# two schedules on one optimizer, and one that is resumed
optimizer = SGD(model.parameters(), lr=1.0)
first, second = (
    ExponentialLR(optimizer, gamma=0.9),
    MultiStepLR(optimizer, milestones=[2], gamma=0.1),
)
for epoch in range(4):
    optimizer.step()
    first.step()
    second.step()
    print(epoch, round(optimizer.param_groups[0]["lr"], 6))
state = first.state_dict()
resumed = ExponentialLR(SGD(model.parameters(), lr=1.0), gamma=0.9)
resumed.load_state_dict(state)
print(resumed.last_epoch, [round(v, 6) for v in resumed.get_last_lr()])
