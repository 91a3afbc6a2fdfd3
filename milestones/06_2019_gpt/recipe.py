"""What a GPT learns from the shipped corpus in minutes on two cores: `recipe.py char` or `bpe`.

`main.py` trains for a minute, so that it can be a test; this trains for as long as it is told, by
compiled code, and is judged on the whole of the validation part, which no step has seen.

    char    4 layers, a vocabulary of characters; 5 minutes
    bpe     6 layers, 2048 tokens that are learned from the training part; 30 minutes

The matrices of the blocks learn by Muon, all else by AdamW; the rates are constant after a short
warm-up and go down to zero in a line over the second half of the time.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
from main import bigram_loss

import tinytorch
from tinytorch import optim
from tinytorch.nn import functional as F
from tinytorch.nn.gpt import GPT, GPTConfig
from tinytorch.text import BytePairTokenizer, CharacterTokenizer, Windows, corpus

WARM_UP, DECAY = 0.02, 0.5  # parts of the time
MODERN = {"norm": "rms", "positions": "rotary", "activation": "relu2", "qk_norm": True}


@dataclass(frozen=True)
class Recipe:
    """Sizes of a GPT and of a batch of windows, and for how long it learns."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int
    minutes: float
    dropout: float = 0.0


RECIPES = {
    "char": Recipe(layers=4, heads=4, width=128, context=256, batch=8, minutes=5),
    "bpe": Recipe(layers=6, heads=6, width=192, context=128, batch=16, minutes=30, dropout=0.1),
}


def batches(ids, recipe, rng):
    """Windows in random order without end; in each round over the text they begin elsewhere."""
    while True:
        windows = Windows(ids[rng.integers(recipe.context) :], recipe.context)
        order = rng.permutation(len(windows))
        for i in range(0, len(order) - recipe.batch + 1, recipe.batch):
            yield windows.get_batch(order[i : i + recipe.batch])


def optimizers(model):
    """Muon for the matrices of the blocks, AdamW for all else."""
    named = list(model.named_parameters())
    hidden = [p for name, p in named if p.ndim == 2 and name.startswith("blocks")]
    rest = [p for name, p in named if p.ndim != 2 or not name.startswith("blocks")]
    adamw = optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95), weight_decay=0)
    return [optim.Muon(hidden, lr=0.02), adamw]


def train(model, ids, recipe, seed):
    """As many steps as there is time for; compiling is part of it."""
    rng, learners = np.random.default_rng(seed), optimizers(model)
    largest = [[group["lr"] for group in learner.param_groups] for learner in learners]

    @tinytorch.compile
    def step(x, y):
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        for learner in learners:
            learner.zero_grad()
        loss.backward()
        for learner in learners:
            learner.step()
        return loss

    def set_rates(factor):
        for learner, rates in zip(learners, largest, strict=True):
            for group, rate in zip(learner.param_groups, rates, strict=True):
                group["lr"] = rate * factor

    given, end = batches(ids, recipe, rng), time.perf_counter() + 60 * recipe.minutes
    set_rates(WARM_UP)
    step(*next(given))  # compiles
    losses, begin, said = [], time.perf_counter(), 0
    while (done := (time.perf_counter() - begin) / (end - begin)) < 1:
        set_rates(min(1.0, done / WARM_UP + WARM_UP, (1 - done) / DECAY))
        losses.append(step(*next(given)).item())
        if int(10 * done) > said:
            said = int(10 * done)
            print(f"{done:4.0%}: loss {np.mean(losses[-100:]):.3f}", flush=True)
    tokens = len(losses) * recipe.batch * recipe.context
    print(f"{len(losses)} steps, {tokens / len(ids):.1f} times the text")


def validate(model, ids, context):
    """Nats per token over the whole text, in windows side by side; the last may be shorter."""
    model.eval()
    total = 0.0
    with tinytorch.no_grad():
        for start in range(0, len(ids) - 1, context):
            window = ids[start : start + context + 1]
            x, y = Windows(window, len(window) - 1).get_batch([0])
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
            total += loss * y.numel()
    model.train()
    return total / (len(ids) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--minutes", type=float, help="instead of the recipe's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    recipe = RECIPES[options.recipe]
    if options.minutes is not None:
        recipe = Recipe(**{**vars(recipe), "minutes": options.minutes})
    tinytorch.set_backend("optimized")
    tinytorch.set_num_threads(options.threads)
    tinytorch.manual_seed(options.seed)
    text, held_out = corpus.python_docs("train"), corpus.python_docs("validation")
    if options.recipe == "char":
        tokenizer = CharacterTokenizer.train(text + held_out)  # which characters there are
        size = len(tokenizer.characters)
    else:
        size = 2048
        tokenizer = BytePairTokenizer.train(text, size)
    ids, unseen = (np.asarray(tokenizer.encode(t), np.int64) for t in (text, held_out))
    config = GPTConfig(
        size, recipe.context, recipe.layers, recipe.heads, recipe.width, dropout=recipe.dropout,
        bias=False, **MODERN,
    )  # fmt: skip
    model = GPT(config)
    count = sum(p.numel() for p in model.parameters())
    print(f"{count:,} weights, {len(ids):,} tokens to learn from, {len(unseen):,} to be judged on")
    train(model, ids, recipe, options.seed)
    loss, table = validate(model, unseen, recipe.context), bigram_loss(ids, unseen, size)
    per_character = (len(unseen) - 1) / len(held_out)
    print(
        f"all of the validation part: {loss:.4f} nats a token, {loss * per_character:.4f} a "
        f"character; a table of pairs {table:.4f} and {table * per_character:.4f}"
    )


if __name__ == "__main__":
    main()
