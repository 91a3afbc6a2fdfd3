import math

import torch
import torch.nn as nn
import torch.nn.functional as F

import draws


class LoRALinear(nn.Module):
    """A frozen linear layer and a trained update of low rank."""

    def __init__(self, linear: nn.Linear, rank: int = 2, alpha: float = 4.0):
        super().__init__()
        self.linear = linear
        for p in self.linear.parameters():
            p.requires_grad = False
        self.lora_A = nn.Parameter(
            draws.randn(rank, linear.in_features) / math.sqrt(linear.in_features)
        )
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.linear(x) + F.linear(F.linear(x, self.lora_A), self.lora_B) * self.scaling

    @torch.no_grad()
    def merge(self):
        self.linear.weight += (self.lora_B @ self.lora_A) * self.scaling
        return self.linear


def apply_lora(model, rank=2):
    for name, module in model.named_children():
        if isinstance(module, nn.Linear):
            setattr(model, name, LoRALinear(module, rank))
        else:
            apply_lora(module, rank)
    return model


def merge_lora(model):
    for name, module in list(model.named_children()):
        if isinstance(module, LoRALinear):
            setattr(model, name, module.merge())
        else:
            merge_lora(module)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        return self.head(self.body(x))


model = draws.init_(Net())
x, y = draws.randn(64, 10), draws.randn(64, 2)

total = sum(p.numel() for p in model.parameters())
model = apply_lora(model)
trainable = [p for p in model.parameters() if p.requires_grad]
print("trainable %d of %d" % (sum(p.numel() for p in trainable), total))
print([n for n, p in model.named_parameters() if p.requires_grad])
frozen_before = model.head.linear.weight.clone()
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-2)
for step in range(6):
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}")
assert torch.equal(frozen_before, model.head.linear.weight)
model.eval()
before = model(x)
merge_lora(model)
print("merged equals", torch.allclose(before, model(x), atol=1e-5), type(model.head).__name__)
print(sorted(model.state_dict().keys()))
