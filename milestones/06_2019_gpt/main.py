"""A GPT learns to write from a megabyte of text, a character at a time.

A. Radford and others: a network that only learns to say what comes next learns a language.
"""

import copy
import math
import sys
from pathlib import Path

import numpy as np

import tinytorch
from tinytorch import optim
from tinytorch.compression import quantize_
from tinytorch.data import DataLoader
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.text import CharacterTokenizer, Sampling, Windows, corpus, generate

sys.path.append(str(Path(__file__).resolve().parents[1]))
from gates import SEED, Milestone, log_likelihood_loss, values

EPOCHS, STEPS, BATCH, CONTEXT = 5, 120, 12, 64
ALLOWED = {"int8": 0.001, "int4": 0.01}  # of the loss that fewer bits may add


def bigram_loss(train, validation, size):
    """Nats per character of a table of which character follows which, counted on `train`."""
    counts = np.ones((size, size))
    np.add.at(counts, (train[:-1], train[1:]), 1)
    p = counts / counts.sum(1, keepdims=True)
    return float(-np.log(p[validation[:-1], validation[1:]]).mean())


def evaluate(model, windows):
    """Mean loss over windows of the text that was not learned from."""
    model.eval()
    losses = []
    with tinytorch.no_grad():
        for x, y in DataLoader(windows, batch_size=64):
            losses.append(F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
    model.train()
    return float(np.mean(losses))


def train(milestone, model, ids):
    """AdamW with a warm-up, on windows in random order."""
    loader = iter(DataLoader(Windows(ids, CONTEXT), BATCH, shuffle=True, generator=SEED))
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    total = EPOCHS * STEPS

    def rate(step):
        return min((step + 1) / 50, 0.5 * (1 + math.cos(math.pi * step / total)) + 0.05)

    schedule = optim.lr_scheduler.LambdaLR(optimizer, rate)
    for epoch in milestone.epochs(EPOCHS):
        losses = []
        for _ in range(STEPS):
            x, y = next(loader)
            logits = model(x).flatten(0, 1)
            loss = F.cross_entropy(logits, y.flatten())
            if epoch == 0 and not losses:
                scores = logits.detach().numpy().astype(np.float64)
                by_hand = log_likelihood_loss(scores, y.flatten().numpy())
                milestone.agree("loss equals NumPy's", loss.item(), by_hand, 1e-5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        milestone.say(f"part {epoch + 1} of {EPOCHS}: loss {np.mean(losses):.3f}")


def look_ahead(model, x):
    """How much the logits of the first half change with the second half."""
    with tinytorch.no_grad():
        before = model(x).numpy()[:, : CONTEXT // 2]
        other = x.numpy().copy()
        other[:, CONTEXT // 2 :] = 0
        after = model(tinytorch.tensor(other)).numpy()[:, : CONTEXT // 2]
    return float(np.abs(before - after).max())


def main() -> None:
    milestone = Milestone("2019: GPT", usual_seconds=20, backend="optimized")
    text = corpus.python_docs("train")
    tokenizer = CharacterTokenizer.train(text + corpus.python_docs("validation"))
    ids, held_out = tokenizer.encode(text), tokenizer.encode(corpus.python_docs("validation"))
    size = len(tokenizer.characters)
    config = GPTConfig(size, CONTEXT, layers=4, heads=4, width=128)
    model = GPT(config)
    before = values(model)
    train(milestone, model, ids)

    windows = Windows(held_out[:40_000], CONTEXT)
    loss, table = evaluate(model, windows), bigram_loss(ids, held_out, size)
    milestone.moved(before, model)
    milestone.gate(
        "better than a table of pairs",
        loss < table - 0.2,
        f"{loss:.3f} and {table:.3f} nats a character",
    )
    for scheme, allowed in ALLOWED.items():
        coarse = evaluate(quantize_(copy.deepcopy(model), scheme), windows)
        milestone.gate(
            f"as good in {scheme}",
            coarse != loss and coarse <= (1 + allowed) * loss,
            f"loss {coarse:.4f} and {loss:.4f}: {coarse / loss - 1:+.3%}, allowed {allowed:+.1%}",
        )
    change = look_ahead(model.eval(), windows.get_batch([0])[0])
    milestone.gate("no character sees a later one", change < 1e-4, f"logits change by {change:.1e}")
    prompt, greedy = tokenizer.encode("The ").tolist(), Sampling(temperature=0)
    cached, uncached = (generate(model, [prompt], 60, greedy, use_cache=c) for c in (True, False))
    milestone.gate("a cache changes no character", cached == uncached, f"{len(cached[0])} of them")
    written = generate(model, [prompt], 61, Sampling(0.8, top_k=20), seed=SEED)[0]
    milestone.say(f"\n{tokenizer.decode(np.array(written))}")
    milestone.finish(loss=loss, bigram_loss=table)


if __name__ == "__main__":
    main()
