"""Looking into a network: hooks, activations, gradients, a frozen backbone, Grad-CAM."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import draws


class SmallNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 8, 3, padding=1),
            nn.ReLU(),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(8, 4)

    def forward(self, x):
        x = self.features(x)
        x = torch.flatten(self.avgpool(x), 1)
        return self.classifier(x)


activation = {}


def get_activation(name):
    def hook(model, input, output):
        activation[name] = output.detach()

    return hook


model = draws.init_(SmallNet())
handles = [
    m.register_forward_hook(get_activation(n))
    for n, m in model.named_modules()
    if isinstance(m, (nn.Conv2d, nn.Linear))
]
x, y = draws.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
model(x)
for name, a in activation.items():
    print(
        f"{name:15s} {tuple(a.shape)} mean {a.mean().item():+.5f} std {a.std().item():.5f} dead {(a <= 0).float().mean().item():.3f}"
    )
for h in handles:
    h.remove()

# Grad-CAM: the gradient at the last feature map, by a tensor's hook
saved = {}
feature = model.features(x)
handle = feature.register_hook(lambda g: saved.update(grad=g))
logits = model.classifier(torch.flatten(model.avgpool(feature), 1))
logits.gather(1, y.view(-1, 1)).sum().backward()
handle.remove()
weights = saved["grad"].mean(dim=(2, 3), keepdim=True)
cam = F.relu((weights * feature.detach()).sum(1))
cam = F.interpolate(cam.unsqueeze(1), size=(8, 8), mode="bilinear", align_corners=False)
print("cam", tuple(cam.shape), f"{cam.max().item():.6f} {cam.mean().item():.6f}")

# gradients of gradients are scaled by a hook on a parameter
seen = []
h = model.classifier.weight.register_hook(lambda g: seen.append(g.norm().item()) or g * 0.5)
model.zero_grad()
F.cross_entropy(model(x), y).backward()
print(f"{seen[0]:.6f}", f"{model.classifier.weight.grad.norm().item():.6f}")
h.remove()

# transfer: freeze the features, replace the head
for param in model.features.parameters():
    param.requires_grad = False
model.classifier = nn.Linear(model.classifier.in_features, 2)
draws.init_(model.classifier)
optimizer = torch.optim.SGD(
    [p for p in model.parameters() if p.requires_grad], lr=0.5, momentum=0.9
)
labels = torch.tensor([0, 1, 0, 1])
for step in range(5):
    loss = F.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"fine-tuning {step} {loss.item():.6f}")
print([n for n, p in model.named_parameters() if p.grad is not None])
