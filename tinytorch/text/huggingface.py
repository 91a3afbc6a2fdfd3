"""`tokenizer.json`, the file of Hugging Face's tokenizers, for byte-level byte pairs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tinytorch.errors import DataError
from tinytorch.files import atomic_write
from tinytorch.text.bpe import Pair
from tinytorch.text.tokenizer import BytePairTokenizer

# What their files have for each splitting; the first is what we write. Their engine has no
# possessive quantifiers for `{1,3}`, and takes `$` for the end of a line.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_PATTERNS = {
    "gpt2": _GPT2,
    "gpt4": _LLAMA3.replace(r"|\s*[\r\n]+", r"|\s+\z|\s*[\r\n]+"),
    "llama3": _LLAMA3,
}
_PLAIN = ("single_word", "lstrip", "rstrip")  # what an added token must not ask for


@cache
def byte_characters() -> list[str]:
    """The character that stands for each byte in their files: printable ones stand for themselves.

    Source: `bytes_to_unicode` of GPT-2's `encoder.py`.

    >>> byte_characters()[ord("a")], byte_characters()[ord(" ")]
    ('a', 'Ġ')
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    codes = dict(zip(printable, printable, strict=True))
    codes |= {byte: 0x100 + i for i, byte in enumerate(others)}
    return [chr(codes[byte]) for byte in range(256)]


def _shown(token: bytes) -> str:
    characters = byte_characters()
    return "".join([characters[byte] for byte in token])


def write_tokenizer_json(tokenizer: BytePairTokenizer, path: str | Path) -> None:
    """Write a tokenizer as `tokenizer.json`, for `tokenizers.Tokenizer.from_file`.

    A tokenizer without merges of its own gets a merge for each two tokens whose joined bytes are a
    token. Where one text offers two ways to the same token, Hugging Face's take the way that is
    listed first, and we the leftmost; apart from that the ids are the same.

    Raises:
        ValueError: a special token is written as an ordinary one is: they would be one in the file.
    """
    vocabulary = {_shown(token): number for token, number in tokenizer.vocabulary.items()}
    if both := sorted(vocabulary.keys() & tokenizer.special):
        raise ValueError(
            f"the special token {both[0]!r} would have the id {vocabulary[both[0]]} of an ordinary "
            f"token, which is written so too: name it as no text is, say '<|{both[0]}|>'"
        )
    merges = tokenizer.merges
    if merges is None:
        merges = list(pairs_of(tokenizer.vocabulary))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    pattern = {"Regex": _PATTERNS[tokenizer.split]}
    cut = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    state = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(name, number) for name, number in tokenizer.special.items()],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [cut, {**byte_level, "use_regex": False}],
        },
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": tokenizer.whole,
            "vocab": vocabulary,
            "merges": [[_shown(left), _shown(right)] for left, right in merges],
        },
    }
    with atomic_write(Path(path)) as file:
        file.write(json.dumps(state, ensure_ascii=False, indent=1).encode())


def _added(name: str, number: int) -> dict[str, Any]:
    flags = {**dict.fromkeys(_PLAIN, False), "normalized": False, "special": True}
    return {"id": number, "content": name, **flags}


def pairs_of(vocabulary: dict[bytes, int]) -> Iterable[Pair]:
    """The two parts of every token whose parts are tokens, in the order of the tokens' ids.

    >>> list(pairs_of({b"a": 0, b"b": 1, b"aa": 2, b"aab": 4, b"ab": 3}))
    [(b'a', b'a'), (b'a', b'b'), (b'a', b'ab'), (b'aa', b'b')]
    """
    for token in sorted(vocabulary, key=vocabulary.__getitem__):
        for i in range(1, len(token)):
            if token[:i] in vocabulary and token[i:] in vocabulary:
                yield token[:i], token[i:]


def read_tokenizer_json(path: str | Path) -> BytePairTokenizer:
    """A tokenizer from a `tokenizer.json` with byte-level byte pairs, such as GPT-2's or Llama 3's.

    Its `encode(text, allowed_special="all")` gives the ids that theirs gives with
    `add_special_tokens=False`. What adds tokens around a text (a post-processor) is left out, with
    a warning.

    Raises:
        DataError: the file is truncated, or describes another kind of tokenizer; the message says
            which part cannot be read.
        FileNotFoundError: there is no such file.
    """
    content = Path(path).read_bytes()
    try:
        state = json.loads(content)
        if not isinstance(state, dict):
            raise DataError(f"{path} has a {type(state).__name__} where an object is expected")
        return _restore(state, path)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no JSON, or truncated: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not what Hugging Face's tokenizers write: {error!r}") from error
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _restore(state: dict[str, Any], path: str | Path) -> BytePairTokenizer:
    model = state["model"]
    if model.get("type", "BPE") != "BPE":
        raise ValueError(f"the model is {model['type']!r}; only BPE can be read")
    for part in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(part):
            raise ValueError(f"the model has {part}={model[part]!r}, which is not supported")
    if state["normalizer"] is not None:
        raise ValueError(f"the normalizer {state['normalizer']['type']!r} is not supported")
    if "Template" in json.dumps(state["post_processor"]):
        warnings.warn(f"{path}: tokens that are added around texts are left out", stacklevel=4)
    special = {token["content"]: token["id"] for token in state["added_tokens"] if _plain(token)}
    taken = set(special.values())
    vocabulary = {_bytes(t): number for t, number in model["vocab"].items() if number not in taken}
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    return BytePairTokenizer(
        vocabulary,
        split=_splitting(state["pre_tokenizer"]),
        special=special,
        merges=[(_bytes(left), _bytes(right)) for left, right in pairs],
        whole=bool(model.get("ignore_merges")),
    )


def _plain(token: dict[str, Any]) -> bool:
    if asked := [flag for flag in _PLAIN if token.get(flag)]:
        raise ValueError(f"the token {token['content']!r} has {asked[0]}=true: not supported")
    return True


@cache
def _byte_of() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(byte_characters())}


def _bytes(shown: str) -> bytes:
    try:
        return bytes(map(_byte_of().__getitem__, shown))
    except KeyError as missing:
        raise ValueError(
            f"the token {shown!r} has the character {missing.args[0]!r}, which stands for no byte: "
            f"the tokenizer is not byte-level"
        ) from None


def _splitting(state: dict[str, Any] | None) -> str:
    """The name of the splitting that a pre-tokenizer does."""
    steps = (state or {}).get("pretokenizers", [state])
    *cuts, last = steps
    if not last or last["type"] != "ByteLevel" or last["add_prefix_space"]:
        raise ValueError(f"the pre-tokenizer {state} is not supported: it must end in ByteLevel")
    patterns = [cut.get("pattern", {}).get("Regex") for cut in cuts]
    if last.get("use_regex", True):
        patterns.append(_GPT2)
    names = {pattern: name for name, pattern in _PATTERNS.items()}
    if len(patterns) != 1 or patterns[0] not in names:
        raise ValueError(f"the pattern {patterns} is none of {', '.join(_PATTERNS)}")
    return names[patterns[0]]
