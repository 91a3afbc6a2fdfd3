from __future__ import annotations

import random

import pytest
import tiktoken
from hypothesis import given, settings, strategies as st

import tinytorch
from tests.text.test_splitting import ALPHABET, ORIGINALS
from tests.text.test_tokenizer import BYTES, TEXT, TOKENIZER
from tinytorch.text import BytePairTokenizer
from tinytorch.text.kernels import encoder as compiled
from tinytorch.text.kernels.encoder import Encoder
from tinytorch.text.splitting import SPLITTINGS

VOCABULARY = TOKENIZER.vocabulary
MERGES = [(b"t", b"h"), (b"a", b"t"), (b"th", b"a"), (b"tha", b"t"), (b" ", b"t")]
PARTS = {b"th": 256, b"at": 257, b"tha": 258, b"that": 259, b" t": 260, b"hat": 999}
TOKENIZERS = [BytePairTokenizer(VOCABULARY, split=name) for name in SPLITTINGS] + [
    BytePairTokenizer(BYTES | PARTS, merges=MERGES, whole=whole) for whole in (True, False)
]
ENCODERS = [Encoder(t.vocabulary, t.merges, t.split, t.whole) for t in TOKENIZERS]
ANY_TEXT = st.text(st.sampled_from(ALPHABET + "that") | st.characters(codec="utf-8"))


@settings(max_examples=100)
@given(data=ANY_TEXT.map(str.encode) | st.binary())
def test_compiled_ids_are_the_references(data: bytes) -> None:
    for tokenizer, encoder in zip(TOKENIZERS, ENCODERS, strict=True):
        with tinytorch.using_backend("numpy"):
            expected = tokenizer.encode(data).tolist()
        assert encoder.encode(data).tolist() == expected


@pytest.mark.parametrize("first", [b"", b"a", b"\xe4", b"\xe4\xb8", b"\xf0\x9f\x98"])
def test_every_byte_after_the_beginning_of_a_character(first: bytes) -> None:
    for byte in range(0x75, 0x100):
        data = b"x" + first + bytes([byte]) + b"\x80\xafx"
        with tinytorch.using_backend("numpy"):
            expected = TOKENIZERS[1].encode(data).tolist()
        assert ENCODERS[1].encode(data).tolist() == expected, byte


def test_the_backend_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = BytePairTokenizer(VOCABULARY)
    calls = []
    monkeypatch.setattr(tokenizer, "encode_piece", lambda piece: calls.append(piece) or [1])
    with tinytorch.using_backend("optimized"):
        assert tokenizer.encode("the cat").tolist() == TOKENIZER.encode("the cat").tolist()
        assert calls == []
    with tinytorch.using_backend("naive"):
        tokenizer.encode("the cat")
        assert calls == [b"the", b" cat"]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 300, 1025])
def test_long_pieces(length: int) -> None:
    """The heap, the larger scratch space, and pieces that are not kept."""
    rng = random.Random(length)
    piece = "".join(rng.choices("that", k=length)).encode()
    for tokenizer, encoder in zip(TOKENIZERS, ENCODERS, strict=True):
        expected = tokenizer.encode_piece(piece)
        for _ in range(2):
            assert encoder.encode(piece).tolist() == expected


def test_a_million_times_one_letter() -> None:
    ids = Encoder(BYTES | {b"aa": 256, b"aaaa": 257}, None, "gpt4", True).encode(b"a" * 1_000_003)
    assert ids.tolist() == [257] * 250_000 + [256, 97]


def test_a_full_cache_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "ROWS", 1024)
    encoder = Encoder(VOCABULARY, None, "gpt4", True)
    assert len(encoder._fresh.table) < 4096
    text = " ".join(f"w{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}x{i:x}" for i in range(8000))
    expected = PEER.encode_ordinary(text)
    assert encoder.encode(text.encode()).tolist() == expected
    assert encoder.encode(text.encode()).tolist() == expected


PEER = tiktoken.Encoding(
    "gpt4",
    pat_str=ORIGINALS["gpt4"].replace(r"\Z", "$"),
    mergeable_ranks=VOCABULARY,
    special_tokens={},
)


def _random_text(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return "".join(rng.choices(ALPHABET, k=rng.randrange(1, 24)))
    limit = rng.choice([0x80, 0x300, 0x110000])
    codes = (rng.randrange(limit) for _ in range(rng.randrange(1, 12)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


@pytest.mark.parametrize(
    "count", [2000, pytest.param(100_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_ids_are_tiktokens_on_random_text(count: int) -> None:
    rng = random.Random(0)
    encoder = ENCODERS[list(SPLITTINGS).index("gpt4")]
    for _ in range(count):
        text = _random_text(rng)
        assert encoder.encode(text.encode()).tolist() == PEER.encode_ordinary(text), repr(text)


def test_threads_share_an_encoder() -> None:
    texts = [TEXT[i:] for i in range(50)]
    tokenizer = BytePairTokenizer(VOCABULARY)
    with tinytorch.using_backend("optimized"):
        batch = tokenizer.encode_batch(texts, threads=4)
        assert tokenizer._encoder is not None
    assert [b.tolist() for b in batch] == [PEER.encode_ordinary(text) for text in texts]
