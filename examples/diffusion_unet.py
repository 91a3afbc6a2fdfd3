"""Denoising diffusion with a small U-Net."""

import math

import torch
from torch import nn
import torch.nn.functional as F

import draws

timesteps, image_size, batch_size = 20, 8, 4
betas = torch.linspace(1e-4, 0.02, timesteps)
alphas = 1.0 - betas
alphas_cumprod = torch.cumprod(alphas, axis=0)
alphas_cumprod_prev = F.pad(alphas_cumprod[:-1], (1, 0), value=1.0)
sqrt_alphas_cumprod = torch.sqrt(alphas_cumprod)
sqrt_one_minus_alphas_cumprod = torch.sqrt(1.0 - alphas_cumprod)
posterior_variance = betas * (1.0 - alphas_cumprod_prev) / (1.0 - alphas_cumprod)


def extract(a, t, x_shape):
    out = a.gather(-1, t.cpu())
    return out.reshape(t.shape[0], *((1,) * (len(x_shape) - 1))).to(t.device)


class SinusoidalPositionEmbeddings(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, time):
        half_dim = self.dim // 2
        embeddings = math.log(10000) / (half_dim - 1)
        embeddings = torch.exp(torch.arange(half_dim, device=time.device) * -embeddings)
        embeddings = time[:, None] * embeddings[None, :]
        return torch.cat((embeddings.sin(), embeddings.cos()), dim=-1)


class Block(nn.Module):
    def __init__(self, in_ch, out_ch, time_dim):
        super().__init__()
        self.time_mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_dim, out_ch))
        self.conv1 = nn.Conv2d(in_ch, out_ch, 3, padding=1)
        self.conv2 = nn.Conv2d(out_ch, out_ch, 3, padding=1)
        self.norm = nn.GroupNorm(2, out_ch)
        self.res_conv = nn.Conv2d(in_ch, out_ch, 1) if in_ch != out_ch else nn.Identity()

    def forward(self, x, t):
        h = F.silu(self.norm(self.conv1(x)))
        h = h + self.time_mlp(t)[:, :, None, None]
        return F.silu(self.conv2(h)) + self.res_conv(x)


class Unet(nn.Module):
    def __init__(self, dim=8, channels=1, mults=(1, 2)):
        super().__init__()
        dims = [dim * m for m in mults]
        time_dim = dim * 2
        self.init_conv = nn.Conv2d(channels, dim, 7, padding=3)
        self.time_mlp = nn.Sequential(
            SinusoidalPositionEmbeddings(dim),
            nn.Linear(dim, time_dim),
            nn.GELU(),
            nn.Linear(time_dim, time_dim),
        )
        self.down1 = Block(dim, dims[0], time_dim)
        self.pool = nn.Conv2d(dims[0], dims[0], 4, 2, 1)
        self.down2 = Block(dims[0], dims[1], time_dim)
        self.mid = Block(dims[1], dims[1], time_dim)
        self.up = nn.ConvTranspose2d(dims[1], dims[0], 4, 2, 1)
        self.up1 = Block(2 * dims[0], dim, time_dim)
        self.up2 = nn.Upsample(scale_factor=2, mode="nearest")
        self.final_conv = nn.Sequential(nn.GroupNorm(1, dim), nn.Conv2d(dim, channels, 1))

    def forward(self, x, time):
        x = self.init_conv(x)
        t = self.time_mlp(time)
        skip = self.down1(x, t)
        h = self.mid(self.down2(self.pool(skip), t), t)
        h = self.up(h) + self.up2(F.avg_pool2d(skip, 2))
        return self.final_conv(self.up1(torch.cat((h, skip), dim=1), t))


def q_sample(x_start, t, noise):
    return (
        extract(sqrt_alphas_cumprod, t, x_start.shape) * x_start
        + extract(sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
    )


def p_losses(denoise_model, x_start, t, noise, loss_type="huber"):
    predicted_noise = denoise_model(q_sample(x_start, t, noise), t)
    if loss_type == "l1":
        return F.l1_loss(noise, predicted_noise)
    if loss_type == "l2":
        return F.mse_loss(noise, predicted_noise)
    return F.smooth_l1_loss(noise, predicted_noise)


@torch.no_grad()
def sample(model, n):
    img = draws.randn(n, 1, image_size, image_size)
    for i in reversed(range(0, timesteps)):
        t = torch.full((n,), i, dtype=torch.long)
        mean = extract(torch.sqrt(1.0 / alphas), t, img.shape) * (
            img
            - extract(betas, t, img.shape)
            * model(img, t)
            / extract(sqrt_one_minus_alphas_cumprod, t, img.shape)
        )
        img = (
            mean
            if i == 0
            else mean
            + torch.sqrt(extract(posterior_variance, t, img.shape)) * draws.randn_like(img)
        )
    return img


model = draws.init_(Unet())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
images = draws.rand(batch_size, 1, image_size, image_size) * 2 - 1
for step in range(5):
    optimizer.zero_grad()
    t = draws.randint(0, timesteps, (batch_size,)).long()
    loss = p_losses(
        model, images, t, draws.randn_like(images), loss_type=["huber", "l1", "l2"][step % 3]
    )
    loss.backward()
    optimizer.step()
    print("Loss: %.6f" % loss.item())
out = sample(model, 2)
print(tuple(out.shape), f"{out.mean().item():.4f}")
