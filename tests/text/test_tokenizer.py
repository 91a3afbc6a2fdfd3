from __future__ import annotations

import re

import numpy as np
import pytest
import tiktoken
from hypothesis import given, strategies as st

from tests.text.test_splitting import ALPHABET, ORIGINALS
from tinytorch.text import BytePairTokenizer, CharacterTokenizer
from tinytorch.text.tokenizer import Pair

TEXT = "the cat sat on the mat; that cat's hat isn't the cat's: 中文 中文, 1234 12\n    the\n" * 3
BYTES = {bytes([byte]): byte for byte in range(256)}
END = "<|end|>"


@pytest.fixture(scope="module")
def tokenizer() -> BytePairTokenizer:
    return BytePairTokenizer.train(TEXT, 300, special=[END])


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_come_back(data: bytes) -> None:
    assert TOKENIZER.decode_bytes(TOKENIZER.encode(data)) == data


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text), errors="strict") == text


TOKENIZER = BytePairTokenizer.train(TEXT, 300)


@pytest.mark.parametrize("split", ["gpt2", "gpt4"])
@given(text=st.text(st.sampled_from(ALPHABET) | st.characters(codec="utf-8")))
def test_ids_are_tiktokens(split: str, text: str) -> None:
    ours = BytePairTokenizer(TOKENIZER.vocabulary, split=split)
    assert ours.encode(text).tolist() == PEERS[split].encode_ordinary(text)


PEERS = {
    name: tiktoken.Encoding(
        name,
        pat_str=ORIGINALS[name].replace(r"\Z", "$"),
        mergeable_ranks=TOKENIZER.vocabulary,
        special_tokens={},
    )
    for name in ("gpt2", "gpt4")
}


def test_training_finds_the_words(tokenizer: BytePairTokenizer) -> None:
    assert {b" the", b" cat", b"'s"} <= tokenizer.vocabulary.keys()
    assert len(tokenizer) == len(tokenizer.vocabulary) + 1 <= 301
    ids = tokenizer.encode(TEXT)
    assert ids.dtype == np.int32 and len(ids) < len(TEXT) / 2


def test_several_texts_are_learned_from_like_one_but_no_piece_joins_them() -> None:
    one = BytePairTokenizer.train(iter(["ab ab", b"ab"]), 258).vocabulary
    assert list(one)[256:] == [b"ab", b" ab"]


def test_special_tokens_come_only_where_they_are_allowed(tokenizer: BytePairTokenizer) -> None:
    number = tokenizer.special[END]
    text = f"a{END}the"
    assert number not in tokenizer.encode(text)
    for allowed in ("all", {END}):
        ids = tokenizer.encode(text, allowed_special=allowed).tolist()
        assert ids == [97, number, *tokenizer.encode("the").tolist()]
        assert tokenizer.decode(ids) == text
    with pytest.raises(ValueError, match=re.escape("'<|pad|>' is no special token; there are: ")):
        tokenizer.encode(text, allowed_special={"<|pad|>"})


def test_of_two_special_tokens_the_longer_counts() -> None:
    tokenizer = BytePairTokenizer(BYTES, special={"<a": 300, "<a>": 301})
    assert tokenizer.encode("<a><a", allowed_special="all").tolist() == [301, 300]


def test_batches_in_threads_are_those_of_one(tokenizer: BytePairTokenizer) -> None:
    texts = [TEXT[i:] for i in range(20)]
    for threads in (1, 3):
        batch = tokenizer.encode_batch(texts, threads=threads)
        assert [b.tolist() for b in batch] == [tokenizer.encode(t).tolist() for t in texts]
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        tokenizer.encode_batch(texts, threads=0)


def test_merges_of_their_own_are_taken_in_their_order() -> None:
    vocabulary = BYTES | {b"ab": 300, b"bc": 299, b"abc": 298}
    merges: list[Pair] = [(b"b", b"c"), (b"a", b"b")]
    tokenizer = BytePairTokenizer(vocabulary, merges=merges, whole=False)
    assert tokenizer.encode("abc").tolist() == [97, 299]  # (a, bc) is no merge
    assert tokenizer.encode("ab").tolist() == [300]
    whole = BytePairTokenizer(vocabulary, merges=merges)
    assert whole.encode("abc abcd").tolist() == [298, 32, 97, 299, 100]


def test_nothing_is_nothing(tokenizer: BytePairTokenizer) -> None:
    assert tokenizer.encode("").shape == (0,) and tokenizer.encode(b"").dtype == np.int32
    assert tokenizer.decode([]) == ""


def test_a_cut_character_decodes_to_the_mark_of_what_is_lost() -> None:
    tokenizer = BytePairTokenizer(BYTES)
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode([0xC3], errors="strict")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.decode([5, 70000]), "token 70000 at position 1 is not in the vocabulary of "),
        (lambda t: t.decode([-1]), "token -1 at position 0 is not in"),
        (lambda t: t.encode("a\ud800"), "'\\\\ud800' in position 1: surrogates not allowed"),
        (lambda t: t.train("a", 255), "integer of at least 256, for the single bytes, got 255"),
        (lambda t: t.train("a", 300.5), "integer of at least 256, for the single bytes, got 300.5"),
        (lambda t: t.train("a", 256, special=["<e>", "<e>"]), "token '<e>' is named twice"),
        (lambda t: t.train("a", 256, split="gpt9"), "no splitting 'gpt9'; there are gpt2, "),
        (lambda t: BytePairTokenizer({b"a": 0}), "no token for 255 of the 256 bytes.* b'\\\\x00'"),
        (
            lambda t: BytePairTokenizer(BYTES | {b"ab": 97}),
            "the id 97 has two tokens, b'a' and b'ab'",
        ),
        (lambda t: BytePairTokenizer(BYTES | {b"ab": -3}), "the id of b'ab' is -3"),
        (lambda t: BytePairTokenizer(BYTES | {b"": 256}), "the token of id 256 is empty"),
        (lambda t: BytePairTokenizer(BYTES, merges=[(b"a", b"b")]), "b'a' and b'b' needs.* b'ab'"),
        (
            lambda t: BytePairTokenizer(BYTES, special={"<": 4}),
            "'<' has the id 4, .* b'\\\\x04' has",
        ),
        (lambda t: BytePairTokenizer(BYTES, special={"": 400}), "needs a text; that of id 400"),
        (lambda t: BytePairTokenizer(BYTES, special={"<": -1}), "'<' is -1, below 0"),
    ],
)
def test_bad_input_is_named(call, message: str, tokenizer: BytePairTokenizer) -> None:
    with pytest.raises(ValueError, match=message):
        call(tokenizer)


def test_text_must_be_text(tokenizer: BytePairTokenizer) -> None:
    with pytest.raises(TypeError, match="text is a str or bytes, not int"):
        tokenizer.encode(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"""must be "all" or names, such as .'<e>'."""):
        tokenizer.encode("a", allowed_special="<e>")
    with pytest.raises(TypeError, match=r"special must be texts of tokens, such as \['<e>'\]"):
        tokenizer.train("a", 256, special="<e>")


def test_characters() -> None:
    tokenizer = CharacterTokenizer.train(["hello", "wörld"], special=[END])
    assert tokenizer.characters == sorted({*"hellowörld"})
    ids = tokenizer.encode(f"hö{END}", allowed_special="all")
    assert ids.dtype == np.int32 and ids[-1] == len(tokenizer) - 1
    assert tokenizer.decode(ids) == f"hö{END}"
    with pytest.raises(ValueError, match=r"'X' \(U\+0058\) at position 2 is none of the 8"):
        tokenizer.encode("heX")
    with pytest.raises(ValueError, match="token 99 at position 1"):
        tokenizer.decode([0, 99])
    with pytest.raises(ValueError, match="'a' occurs twice"):
        CharacterTokenizer("aba")
    with pytest.raises(ValueError, match="'ab' is not one character"):
        CharacterTokenizer(["ab"])
