"""A bigram model of names: by counting, and as a one-layer network."""

import torch
import torch.nn.functional as F

import draws

words = ["emma", "olivia", "ava", "isabella", "sophia", "mia", "amelia", "harper", "evelyn", "ella"]
chars = sorted(list(set("".join(words))))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
itos = {i: s for s, i in stoi.items()}
V = len(stoi)

N = torch.zeros((V, V), dtype=torch.int32)
for w in words:
    chs = ["."] + list(w) + ["."]
    for ch1, ch2 in zip(chs, chs[1:]):
        N[stoi[ch1], stoi[ch2]] += 1
P = (N + 1).float()
P /= P.sum(1, keepdim=True)
print(N.sum().item(), P[0].sum().item())

log_likelihood, n = 0.0, 0
for w in words:
    chs = ["."] + list(w) + ["."]
    for ch1, ch2 in zip(chs, chs[1:]):
        log_likelihood += torch.log(P[stoi[ch1], stoi[ch2]])
        n += 1
print(f"log_likelihood={log_likelihood.item():.4f} nll={(-log_likelihood / n).item():.6f}")

for i in range(3):
    out, ix = [], 0
    while True:
        ix = int(draws.multinomial(P[ix : ix + 1])[0])
        if ix == 0 or len(out) > 20:
            break
        out.append(itos[ix])
    print("".join(out))

xs, ys = [], []
for w in words:
    chs = ["."] + list(w) + ["."]
    for ch1, ch2 in zip(chs, chs[1:]):
        xs.append(stoi[ch1])
        ys.append(stoi[ch2])
xs, ys = torch.tensor(xs), torch.tensor(ys)
num = xs.nelement()
print("number of examples:", num)
W = draws.randn(V, V).requires_grad_()
for k in range(10):
    xenc = F.one_hot(xs, num_classes=V).float()
    logits = xenc @ W
    counts = logits.exp()
    probs = counts / counts.sum(1, keepdims=True)
    loss = -probs[torch.arange(num), ys].log().mean() + 0.01 * (W**2).mean()
    print(f"{k} {loss.item():.6f}")
    W.grad = None
    loss.backward()
    W.data += -20 * W.grad
