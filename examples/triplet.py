import torch
import torch.nn as nn
import torch.nn.functional as F

import draws


class EmbeddingNet(nn.Module):
    def __init__(self, embedding_dim=8):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 8, 5, padding=2),
            nn.PReLU(),
            nn.MaxPool1d(2, stride=2),
            nn.Conv1d(8, 8, 3, padding=1),
            nn.PReLU(),
            nn.AdaptiveAvgPool1d(4),
        )
        self.fc = nn.Linear(32, embedding_dim)

    def forward(self, x):
        x = self.conv(x).flatten(1)
        return F.normalize(self.fc(x), p=2, dim=1)


def signals(kind, n):
    t = torch.linspace(0, 1, 32)
    wave = torch.sin(2 * torch.pi * (kind + 1) * t)
    return (wave + 0.3 * draws.randn(n, 32)).unsqueeze(1)


net = draws.init_(EmbeddingNet())
margin_loss = nn.TripletMarginLoss(margin=0.5, p=2)
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, alpha=0.9)
for step in range(6):
    anchor, positive, negative = (
        signals(step % 3, 8),
        signals(step % 3, 8),
        signals((step + 1) % 3, 8),
    )
    a, p, n = net(anchor), net(positive), net(negative)
    loss = margin_loss(a, p, n)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    similarity = F.cosine_similarity(a, p, dim=1).mean()
    print(f"step {step}: loss {loss.item():.6f}, similarity {similarity.item():.5f}")

# hardest negatives from all pairs of distances
with torch.no_grad():
    e = net(torch.cat([signals(k, 4) for k in range(3)]))
    labels = torch.arange(3).repeat_interleave(4)
    d = torch.cdist(e, e)
    same = labels[:, None].eq(labels[None, :])
    hardest_positive = d.masked_fill(~same, 0.0).max(dim=1).values
    hardest_negative = d.masked_fill(same, float("inf")).amin(dim=1)
    print("batch-hard %.5f" % F.relu(hardest_positive - hardest_negative + 0.5).mean().item())
