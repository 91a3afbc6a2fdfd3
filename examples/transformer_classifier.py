import torch
import torch.nn as nn

import draws


class Classifier(nn.Module):
    def __init__(self, vocab, d_model=16, nhead=4, num_layers=2, num_classes=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, d_model, padding_idx=0)
        self.cls = nn.Parameter(torch.zeros(1, 1, d_model))
        layer = nn.TransformerEncoderLayer(
            d_model,
            nhead,
            dim_feedforward=32,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, num_classes)

    def forward(self, tokens):
        pad = tokens == 0
        x = torch.cat([self.cls.expand(tokens.size(0), -1, -1), self.embed(tokens)], dim=1)
        pad = torch.cat([torch.zeros_like(pad[:, :1]), pad], dim=1)
        x = self.encoder(x, src_key_padding_mask=pad)
        return self.head(self.norm(x[:, 0]))


def data(n, length=8, vocab=10):
    tokens = draws.randint(1, vocab, (n, length))
    keep = draws.randint(3, length + 1, (n, 1))
    tokens = torch.where(torch.arange(length) < keep, tokens, torch.zeros_like(tokens))
    return tokens, (tokens == 7).any(dim=1).long()


model = draws.init_(Classifier(10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=6)
model.train()
for step in range(5):
    tokens, y = data(16)
    loss = nn.functional.cross_entropy(model(tokens), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    print(
        f"{step} loss={loss.item():.6f} lr={scheduler.get_last_lr()[0]:.6f} positives={y.sum().item()}"
    )
x, attention = draws.randn(2, 5, 16), nn.MultiheadAttention(16, 4, batch_first=True)
draws.init_(attention)
causal = torch.triu(torch.ones(5, 5, dtype=torch.bool), diagonal=1)
out, weights = attention(x, x, x, attn_mask=causal)
print(tuple(out.shape), tuple(weights.shape), f"{out.mean().item():.6f}", weights[0, 0].tolist())
