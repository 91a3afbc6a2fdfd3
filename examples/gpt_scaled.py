"""Training a GPT with gradient accumulation, warm-up and cosine decay, and fused attention."""

import math
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F

import draws

# hyperparameters
batch_size, gradient_accumulation_steps, block_size = 2, 2, 12
max_iters, warmup_iters, lr_decay_iters = 5, 2, 5
learning_rate, min_lr, grad_clip = 1e-2, 1e-3, 1.0
n_embd, n_head, n_layer = 24, 3, 2
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = "float32"
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "float16": torch.float16}[dtype]
ctx = (
    nullcontext()
    if device_type == "cpu"
    else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
)
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True

text = "to be or not to be that is the question whether tis nobler in the mind to suffer"
chars = sorted(list(set(text)))
stoi = {ch: i for i, ch in enumerate(chars)}
encode = lambda s: [stoi[c] for c in s]
data = torch.tensor(encode(text), dtype=torch.long)


def get_batch():
    ix = draws.randint(0, len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + block_size + 1] for i in ix])
    return x.to(device), y.to(device)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = [t.view(B, T, n_head, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1)]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.sa = Head()
        self.ffwd = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * n_embd, n_embd),
        )
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(len(chars), n_embd)
        self.position = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, len(chars))

    def forward(self, idx, targets):
        B, T = idx.shape
        x = self.token(idx) + self.position(torch.arange(T, device=device))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        B, T, C = logits.shape
        return F.cross_entropy(logits.view(B * T, C), targets.view(B * T))


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    decay_ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return min_lr + coeff * (learning_rate - min_lr)


model = draws.init_(Model()).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
scaler = torch.amp.GradScaler(device_type, enabled=(dtype == "float16"))
t0 = time.time()
for iter_num in range(max_iters):
    lr = get_lr(iter_num)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    total = 0.0
    for micro_step in range(gradient_accumulation_steps):
        X, Y = get_batch()
        with ctx:
            loss = model(X, Y) / gradient_accumulation_steps
        total += loss.item()
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iter_num}: loss {total:.6f}, lr {lr:.6f}, norm {norm.item():.5f}")
assert time.time() >= t0
