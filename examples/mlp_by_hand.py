"""A two-layer network whose backward pass is written out, checked against autograd."""

import torch
import torch.nn.functional as F

import draws

draws.seed(1)
n, n_in, n_hidden, n_out = 32, 10, 20, 5
X = draws.randn(n, n_in)
Y = draws.randint(0, n_out, (n,))

W1 = draws.randn(n_in, n_hidden) * (5 / 3) / n_in**0.5
b1 = draws.randn(n_hidden) * 0.1
W2 = draws.randn(n_hidden, n_out) * 0.1
b2 = draws.randn(n_out) * 0.1
bngain = torch.ones((1, n_hidden))
bnbias = torch.zeros((1, n_hidden))
parameters = [W1, b1, W2, b2, bngain, bnbias]
print(sum(p.nelement() for p in parameters))
for p in parameters:
    p.requires_grad = True


def cmp(s, dt, t):
    ex = torch.all(dt == t.grad).item()
    app = torch.allclose(dt, t.grad, atol=1e-6)
    maxdiff = (dt - t.grad).abs().max().item()
    print(f"{s:10s} | approximate: {str(app):5s} | small: {maxdiff < 1e-6} | {ex in (True, False)}")


for step in range(5):
    # forward, in small pieces
    hprebn = X @ W1 + b1
    bnmeani = 1 / n * hprebn.sum(0, keepdim=True)
    bndiff = hprebn - bnmeani
    bndiff2 = bndiff**2
    bnvar = 1 / (n - 1) * bndiff2.sum(0, keepdim=True)
    bnvar_inv = (bnvar + 1e-5) ** -0.5
    bnraw = bndiff * bnvar_inv
    hpreact = bngain * bnraw + bnbias
    h = torch.tanh(hpreact)
    logits = h @ W2 + b2
    logit_maxes = logits.max(1, keepdim=True).values
    norm_logits = logits - logit_maxes
    counts = norm_logits.exp()
    counts_sum = counts.sum(1, keepdims=True)
    probs = counts * counts_sum**-1
    logprobs = probs.log()
    loss = -logprobs[range(n), Y].mean()

    for p in parameters:
        p.grad = None
    for t in [logprobs, probs, logits, h, hpreact, bnraw, hprebn]:
        t.retain_grad()
    loss.backward()

    # backward, by hand
    dlogprobs = torch.zeros_like(logprobs)
    dlogprobs[range(n), Y] = -1.0 / n
    dlogits = F.softmax(logits, 1)
    dlogits[range(n), Y] -= 1
    dlogits /= n
    dh = dlogits @ W2.T
    dW2 = h.T @ dlogits
    db2 = dlogits.sum(0)
    dhpreact = (1.0 - h**2) * dh
    dbngain = (bnraw * dhpreact).sum(0, keepdim=True)
    dbnbias = dhpreact.sum(0, keepdim=True)
    dhprebn = (
        bngain
        * bnvar_inv
        / n
        * (n * dhpreact - dhpreact.sum(0) - n / (n - 1) * bnraw * (dhpreact * bnraw).sum(0))
    )
    dW1 = X.T @ dhprebn
    db1 = dhprebn.sum(0)
    if step == 0:
        cmp("logprobs", dlogprobs, logprobs)
        cmp("logits", dlogits, logits)
        cmp("hpreact", dhpreact, hpreact)
        cmp("hprebn", dhprebn, hprebn)
        for name, g, p in zip(
            "W1 W2 b2 gain bias".split(),
            (dW1, dW2, db2, dbngain, dbnbias),
            (W1, W2, b2, bngain, bnbias),
        ):
            cmp(name, g, p)
    with torch.no_grad():
        for p, grad in zip(parameters, [dW1, db1, dW2, db2, dbngain, dbnbias]):
            p.data += -0.1 * grad
    print(f"{step}: {loss.item():.6f}")
