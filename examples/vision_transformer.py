import torch
from torch import nn

import draws


def pair(t):
    return t if isinstance(t, tuple) else (t, t)


class FeedForward(nn.Module):
    def __init__(self, dim, hidden_dim, dropout=0.0):
        super().__init__()
        self.net = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, hidden_dim),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_dim, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x):
        return self.net(x)


class Attention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=8):
        super().__init__()
        inner_dim = dim_head * heads
        self.heads, self.scale = heads, dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = nn.Linear(inner_dim, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (
            t.reshape(b, n, self.heads, -1).permute(0, 2, 1, 3)
            for t in self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        )
        dots = torch.einsum("bhid,bhjd->bhij", q, k) * self.scale
        out = torch.einsum("bhij,bhjd->bhid", self.attend(dots), v)
        return self.to_out(out.permute(0, 2, 1, 3).flatten(2))


class ViT(nn.Module):
    def __init__(
        self,
        *,
        image_size,
        patch_size,
        num_classes,
        dim,
        depth,
        heads,
        mlp_dim,
        pool="cls",
        channels=3,
    ):
        super().__init__()
        (ih, iw), (ph, pw) = pair(image_size), pair(patch_size)
        assert ih % ph == 0 and iw % pw == 0, (
            "Image dimensions must be divisible by the patch size."
        )
        num_patches = (ih // ph) * (iw // pw)
        self.patch_size = (ph, pw)
        self.patch = nn.Linear(channels * ph * pw, dim)
        self.pos_embedding = nn.Parameter(draws.randn(1, num_patches + 1, dim))
        self.cls_token = nn.Parameter(draws.randn(1, 1, dim))
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([Attention(dim, heads), FeedForward(dim, mlp_dim)]))
        self.pool, self.norm, self.mlp_head = pool, nn.LayerNorm(dim), nn.Linear(dim, num_classes)

    def forward(self, img):
        ph, pw = self.patch_size
        x = img.unfold(2, ph, ph).unfold(3, pw, pw)
        x = x.permute(0, 2, 3, 1, 4, 5).reshape(img.size(0), -1, img.size(1) * ph * pw)
        x = self.patch(x)
        b, n, _ = x.shape
        x = torch.cat((self.cls_token.repeat(b, 1, 1), x), dim=1)
        x += self.pos_embedding[:, : (n + 1)]
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        x = x.mean(dim=1) if self.pool == "mean" else x[:, 0]
        return self.mlp_head(self.norm(x))


v = draws.init_(
    ViT(image_size=16, patch_size=4, num_classes=5, dim=16, depth=2, heads=2, mlp_dim=32)
)
print(f"{sum(p.numel() for p in v.parameters())} parameters, {len(v.layers)} layers")
images, labels = draws.randn(8, 3, 16, 16), draws.randint(0, 5, (8,))
optimizer = torch.optim.NAdam(v.parameters(), lr=2e-3)
for step in range(5):
    logits = v(images)
    loss = nn.functional.cross_entropy(logits, labels, label_smoothing=0.05)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step}: {loss.item():.6f} acc {(logits.argmax(-1) == labels).float().mean():.3f}")
