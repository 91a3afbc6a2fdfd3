"""Tokenizers side by side: ours compiled, tiktoken, rustbpe, Hugging Face's, on one thread.

The text is the source of this machine's standard library. Before anything is timed, the ids must be
those of tiktoken for the whole text, decoding must give the text back, and training must have made
as many tokens as asked for. Times are CPU time. `cold` begins with no pieces in the cache, as the
others do at every call; `warm` has met the text before. Peers that are not installed are left out.
"""

import thread_count  # noqa: F401, I001 - before NumPy

import argparse
import os
import re
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["RAYON_NUM_THREADS"] = "1"  # before tokenizers and rustbpe are loaded
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import numpy as np
from runner import Case, as_json, measure, verdict

import tinytorch
from tinytorch.bench import format_seconds, format_table
from tinytorch.text import BytePairTokenizer, write_tokenizer_json
from tinytorch.text.corpus import standard_library
from tinytorch.text.splitting import SPLITTINGS

DOCUMENT = 20_000  # characters of a piece of text for Hugging Face's, which slow down on long ones
#: Ours against theirs, at least.
GOALS = {
    "encode": {"tiktoken": 5.0, "tokenizers": 20.0},
    "train": {"rustbpe": 4.0, "tokenizers": 8.0},
}
Functions = dict[str, Callable[[], object]]


def rust_pattern(split: str) -> str:
    """The pattern as tiktoken takes it."""
    return SPLITTINGS[split].pattern.replace(r"\Z", "$")


def encoders(tokenizer: BytePairTokenizer, text: str) -> Functions:
    """Contestants that have been shown to give the ids of `tokenizer`."""
    expected = tokenizer.encode(text)
    if tokenizer.decode(expected) != text:
        raise SystemExit("decoding does not give the text back")
    compiled = tokenizer._compiled()
    data = text.encode()

    def cold() -> object:
        compiled._free.clear()
        return compiled.encode(data)

    found: Functions = {"ours": cold, "ours, warm": lambda: tokenizer.encode(text)}
    if find_spec("tiktoken"):
        import tiktoken

        peer = tiktoken.Encoding(
            "ours",
            pat_str=rust_pattern(tokenizer.split),
            mergeable_ranks=tokenizer.vocabulary,
            special_tokens={},
        )
        if not np.array_equal(peer.encode_ordinary(text), expected):
            raise SystemExit("tiktoken gives other ids: there is nothing to compare")
        found["tiktoken"] = lambda: peer.encode_ordinary(text)
    if find_spec("tokenizers"):
        theirs = hugging_face(tokenizer)
        parts = [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]
        for part in parts[:20]:
            if theirs.encode(part).ids != tokenizer.encode(part).tolist():
                raise SystemExit("Hugging Face's tokenizers give other ids")
        found["tokenizers"] = lambda: theirs.encode_batch_fast(parts)
    return found


def hugging_face(tokenizer: BytePairTokenizer) -> Any:
    """The same tokenizer as one of Hugging Face's."""
    import tokenizers

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        write_tokenizer_json(tokenizer, path)
        return tokenizers.Tokenizer.from_file(str(path))


def trainers(text: str, size: int) -> Functions:
    """Contestants that learn `size` tokens from the text. Each decides ties in its own way."""

    def ours() -> object:
        return BytePairTokenizer.train(text, size)

    found: Functions = {"ours": ours}
    if len(BytePairTokenizer.train(text, size)) != size:
        raise SystemExit(f"the text is too short for {size} tokens")
    if find_spec("rustbpe"):
        import rustbpe

        def rust() -> object:
            trained = rustbpe.Tokenizer()
            pattern = rust_pattern("gpt4").replace(r"|\s++$", "")  # of the end of the text
            trained.train_from_iterator([text], size, pattern=pattern)
            return trained

        found["rustbpe"] = rust
    if find_spec("tokenizers"):
        from tokenizers import Regex, Tokenizer, models, pre_tokenizers as pre, trainers

        cut = re.sub(r"([+}])\+|\|\\s\+\+\\Z", r"\1", SPLITTINGS["gpt4"].pattern).replace("?+", "?")
        parts = [text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)]

        def theirs() -> object:
            trained = Tokenizer(models.BPE())
            steps = [Pre(Regex(cut), "isolated"), pre.ByteLevel(False, use_regex=False)]
            trained.pre_tokenizer = pre.Sequence(steps)
            alphabet = pre.ByteLevel.alphabet()
            learn = trainers.BpeTrainer(
                vocab_size=size, show_progress=False, initial_alphabet=alphabet
            )
            trained.train_from_iterator(parts, learn)
            return trained

        Pre = pre.Split
        found["tokenizers"] = theirs
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=5.5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--check", action="store_true", help="exit with 1 below a goal")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args()
    tinytorch.set_backend("optimized")
    text = standard_library(limit=int(options.megabytes * 1e6))
    nbytes = len(text.encode())
    results = []
    for size in options.sizes:
        tokenizer = BytePairTokenizer.train(text, size)
        for group, functions in (
            ("train", trainers(text, size)),
            ("encode", encoders(tokenizer, text)),
        ):
            case = Case(group, f"{group}, {size} tokens", functions, nbytes=nbytes)
            results.append(measure(case, clock="process", rounds=options.rounds))
    if options.json:
        print(as_json(results))
        return
    print(f"{nbytes / 1e6:.2f} MB of Python, CPU time of one thread; ratios: other / ours\n")
    others = list(dict.fromkeys(name for result in results for name in result.ratios))
    rows = [
        [
            result.name + (" !" if result.disturbed else ""),
            format_seconds(result.seconds["ours"]),
            f"{nbytes / result.seconds['ours'] / 1e6:.0f}",
            *(f"{result.ratios[o]:.2f}" if o in result.ratios else "" for o in others),
        ]
        for result in results
    ]
    print(format_table(["", "ours", "MB/s", *(f"{other}/ours" for other in others)], rows))
    missed, absent = verdict(results, GOALS)
    print("\n" + "\n".join([*missed, *absent] or ["all goals are met"]))
    if options.check and missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
