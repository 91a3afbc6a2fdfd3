"""Attention looks up what belongs to a key, which a mean of everything cannot.

A. Vaswani and others: a query is compared with every key, and takes the values of those that fit.
"""

import sys
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch import nn, optim
from tinytorch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import SEED, Milestone, log_likelihood_loss, values

KEYS, VALUES, PAIRS, WIDTH = 16, 16, 8, 32
EPOCHS, STEPS, BATCH = 4, 60, 64


class Lookup(nn.Module):
    """Which value was beside the key that is asked for? With attention, or with a mean of all."""

    def __init__(self, attention: bool) -> None:
        super().__init__()
        self.attention = attention
        self.keys, self.values = nn.Embedding(KEYS, WIDTH), nn.Embedding(VALUES, WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.hidden = nn.Linear(2 * WIDTH, 2 * WIDTH)
        self.out = nn.Linear(2 * WIDTH, VALUES)

    def forward(self, keys, seen, asked):
        """keys, seen (batch, pairs); asked (batch): scores (batch, values)"""
        q = self.query(self.keys(asked)).unsqueeze(1)
        k, v = self.key(self.keys(keys)), self.value(self.values(seen) + self.keys(keys))
        found = (
            F.scaled_dot_product_attention(q, k, v) if self.attention else v.mean(1, True) + 0 * q
        )
        both = tinytorch.cat([found.squeeze(1), self.keys(asked)], 1)
        return self.out(F.relu(self.hidden(both)))


def draw(rng, count):
    """Pairs of different keys with values at random, and one of the keys: a new task each time."""
    keys = np.argsort(rng.random((count, KEYS)), 1)[:, :PAIRS]
    seen = rng.integers(0, VALUES, (count, PAIRS))
    place = rng.integers(0, PAIRS, count)
    rows = np.arange(count)
    inputs = [tinytorch.tensor(a) for a in (keys, seen, keys[rows, place])]
    return inputs, seen[rows, place], place


def weights_of(model, keys, asked):
    """softmax(q k^T / sqrt(width)) in NumPy, from the model's parameters: (batch, pairs)"""
    p = values(model)
    q = p["keys.weight"][asked] @ p["query.weight"].T
    k = p["keys.weight"][keys] @ p["key.weight"].T
    scores = np.einsum("bw,bpw->bp", q, k) / np.sqrt(WIDTH)
    odds = np.exp(scores - scores.max(1, keepdims=True))
    return odds / odds.sum(1, keepdims=True)


def scores_by_hand(model, inputs):
    """What the model with attention computes, in NumPy."""
    p, (keys, seen, asked) = values(model), [t.numpy() for t in inputs]
    v = (p["values.weight"][seen] + p["keys.weight"][keys]) @ p["value.weight"].T
    found = np.einsum("bp,bpw->bw", weights_of(model, keys, asked), v)
    both = np.concatenate([found, p["keys.weight"][asked]], 1)
    hidden = np.maximum(both @ p["hidden.weight"].T + p["hidden.bias"], 0)
    return hidden @ p["out.weight"].T + p["out.bias"]


def train(milestone, model, name):
    """Train on tasks that are never seen twice."""
    rng = np.random.default_rng(SEED)
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    for epoch in milestone.epochs(EPOCHS):
        losses = []
        for _ in range(STEPS):
            inputs, answers, _ = draw(rng, BATCH)
            loss = F.cross_entropy(model(*inputs), tinytorch.tensor(answers))
            if model.attention and epoch == 0 and not losses:
                by_hand = log_likelihood_loss(scores_by_hand(model, inputs), answers)
                milestone.agree("loss equals NumPy's", loss.item(), by_hand, 1e-5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        milestone.say(f"{name}, epoch {epoch + 1}: loss {np.mean(losses):.4f}")


def main() -> None:
    milestone = Milestone("2017: attention", usual_seconds=1, backend="numpy")
    model, mean = Lookup(attention=True), Lookup(attention=False)
    before = values(model)
    train(milestone, model, "attention")
    train(milestone, mean, "mean of all")

    inputs, answers, place = draw(np.random.default_rng(SEED + 1), 1000)
    with tinytorch.no_grad():
        right = float((model(*inputs).argmax(1).numpy() == answers).mean())
        by_mean = float((mean(*inputs).argmax(1).numpy() == answers).mean())
    weights = weights_of(model, inputs[0].numpy(), inputs[2].numpy())
    on_place = float(weights[np.arange(len(place)), place].mean())
    milestone.moved(before, model)
    milestone.at_least("answers with attention", right, 0.95)
    milestone.at_least("weight on the pair that was asked for", on_place, 0.9)
    milestone.gate(
        "a mean of all does not do it", by_mean < 0.5, f"{by_mean:.2%}, chance is 1 in {VALUES}"
    )
    milestone.finish(accuracy=right, without_attention=by_mean, weight_on_the_pair=on_place)


if __name__ == "__main__":
    main()
