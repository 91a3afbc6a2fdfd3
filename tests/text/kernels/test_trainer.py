from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.text.test_tokenizer import TEXT
from tinytorch.text import BytePairTokenizer, bpe
from tinytorch.text.kernels import counting, trainer
from tinytorch.text.splitting import SPLITTINGS, split

WORDS = st.text(st.sampled_from("aab bc'd\n1é"), max_size=60).map(str.encode) | st.binary(
    max_size=9
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    texts=st.lists(WORDS, max_size=6),
    size=st.integers(256, 330),
    name=st.sampled_from([*SPLITTINGS]),
)
def test_the_vocabulary_is_the_references(texts: list[bytes], size: int, name: str) -> None:
    pieces = Counter(piece for text in texts for piece in split(text, name))
    expected = bpe.train(pieces, size)
    assert list(trainer.train(texts, size, name).items()) == list(expected.items())
    found = counting.count(texts, name)
    data = found.text.tobytes()
    spans = zip(found.ends[:-1].tolist(), found.ends[1:].tolist(), strict=True)
    counted = dict(zip([data[i:j] for i, j in spans], found.times.tolist(), strict=True))
    assert counted == pieces


@pytest.mark.slow
def test_tables_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{i * 7919 % 10007} {i:b}x{'ab' * (i % 40)}\n".encode() for i in range(900)]
    expected = trainer.train(texts, 700, "gpt2")
    monkeypatch.setattr(counting, "ROWS", 16)
    monkeypatch.setattr(trainer, "ROWS", 1 << 9)
    assert list(trainer.train(texts, 700, "gpt2").items()) == list(expected.items())
    pieces = Counter(piece for text in texts for piece in split(text, "gpt2"))
    assert list(bpe.train(pieces, 300)) == list(expected)[:300]


def test_the_optimized_backend_trains_the_same() -> None:
    with tinytorch.using_backend("optimized"):
        compiled = BytePairTokenizer.train(TEXT, 290)
    assert compiled.vocabulary == BytePairTokenizer.train(TEXT, 290).vocabulary


def test_too_much_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "MOST_POSITIONS", 3)
    with pytest.raises(ValueError, match="have 8 bytes, and training takes 3"):
        trainer.train([b"ab cd ab"], 300, "gpt2")
