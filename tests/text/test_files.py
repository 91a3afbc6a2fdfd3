from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tokenizers
from tiktoken.load import load_tiktoken_bpe

from tests.text.test_splitting import ALPHABET, ORIGINALS
from tests.text.test_tokenizer import BYTES, END, TEXT
from tinytorch.errors import DataError
from tinytorch.text import (
    BytePairTokenizer,
    CharacterTokenizer,
    load_tokenizer,
    read_tiktoken,
    read_tokenizer_json,
    save_tokenizer,
    write_tiktoken,
    write_tokenizer_json,
)

SAMPLES = [TEXT, ALPHABET, "Isn't it?  \n\n  12345 \n", "naïve façade – “quoted” …", "   "]  # noqa: RUF001


@pytest.fixture(scope="module", params=["gpt2", "gpt4", "llama3"])
def tokenizer(request: pytest.FixtureRequest) -> BytePairTokenizer:
    return BytePairTokenizer.train(TEXT, 320, split=request.param, special=[END])


def _same(a: BytePairTokenizer, b: BytePairTokenizer) -> bool:
    return (a.vocabulary, a.split, a.special) == (b.vocabulary, b.split, b.special)


def test_saved_and_loaded(tokenizer: BytePairTokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path / "t")
    loaded = load_tokenizer(tmp_path / "t")
    assert isinstance(loaded, BytePairTokenizer) and _same(loaded, tokenizer)
    assert (loaded.merges, loaded.whole) == (None, True)
    assert (tmp_path / "t").stat().st_size < 2500


def test_every_kind_is_saved_and_loaded(tmp_path: Path) -> None:
    save_tokenizer(CharacterTokenizer.train("añ\n", [END]), tmp_path / "c")
    loaded = load_tokenizer(tmp_path / "c")
    assert isinstance(loaded, CharacterTokenizer)
    assert (loaded.characters, loaded.special) == (["\n", "a", "ñ"], {END: 3})
    own = BytePairTokenizer(BYTES | {b"ab": 300}, merges=[(b"a", b"b")], whole=False)
    save_tokenizer(own, tmp_path / "m")
    loaded = load_tokenizer(tmp_path / "m")
    assert isinstance(loaded, BytePairTokenizer) and _same(loaded, own)
    assert (loaded.merges, loaded.whole) == ([(b"a", b"b")], False)


def _gzipped(state: Any) -> bytes:
    return gzip.compress(json.dumps(state).encode(), mtime=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"YQ== 0\n", r"no tokenizer of TinyTorch's: it begins with b'YQ== 0\\n'"),
        (_gzipped([1] * 100)[:-9], "is truncated or damaged: "),
        (
            _gzipped({"format": "other 2"}),
            "has the format 'other 2'; this version reads 'tinytorch",
        ),
        (_gzipped([1]), "has the format 'list'"),
        (_gzipped({"format": "tinytorch tokenizer 1"}), "not what save_tokenizer writes: KeyError"),
        (
            _gzipped(
                {
                    "format": "tinytorch tokenizer 1",
                    "kind": "byte pairs",
                    "special": {},
                    "tokens": [["a"]],
                }
            ),
            "not what save_tokenizer writes: AttributeError",
        ),
    ],
    ids=["ranks", "truncated", "another format", "a list", "lacks its keys", "a list for a token"],
)
def test_files_that_are_none(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(tmp_path / "t")


def test_every_truncation_of_a_file_is_noticed(
    tokenizer: BytePairTokenizer, tmp_path: Path
) -> None:
    save_tokenizer(tokenizer, tmp_path / "t")
    whole = (tmp_path / "t").read_bytes()
    for length in range(0, len(whole), 29):
        (tmp_path / "t").write_bytes(whole[:length])
        with pytest.raises(DataError):
            load_tokenizer(tmp_path / "t")


def test_tiktoken_reads_our_ranks_and_we_read_theirs(
    tokenizer: BytePairTokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "t.tiktoken"
    write_tiktoken(tokenizer, path)
    ranks = load_tiktoken_bpe(str(path))
    assert ranks == tokenizer.vocabulary
    ours = read_tiktoken(path, split=tokenizer.split, special=tokenizer.special, size=len(ranks))
    assert _same(ours, tokenizer)
    theirs = tiktoken.Encoding(
        "ours",
        pat_str=ORIGINALS[tokenizer.split].replace(r"\Z", "$"),
        mergeable_ranks=ranks,
        special_tokens=tokenizer.special,
    )
    text = END.join(SAMPLES)
    assert ours.encode(text, allowed_special="all").tolist() == theirs.encode(
        text, allowed_special="all"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"YQ== 0\nYg=", r"t, line 2: expected a token in base64, .* found b'Yg='"),
        (b"YQ== 0\nYg== x\n", "line 2: expected"),
        (b"YQ== 0\nYQ== 1\n", "line 2: the token b'a' occurs a second time"),
        (b"YQ== 0\n", "no token for 255 of the 256 bytes"),
        (b"PK\x03\x04", "line 1: expected"),
    ],
)
def test_bad_ranks_are_named(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_tiktoken(tmp_path / "t")


def test_a_file_cut_between_two_lines_is_told_by_its_size(tmp_path: Path) -> None:
    write_tiktoken(BytePairTokenizer(BYTES | {b"ab": 256}), tmp_path / "t")
    lines = (tmp_path / "t").read_bytes().splitlines(keepends=True)
    (tmp_path / "t").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(DataError, match="has 256 ranks and should have 257"):
        read_tiktoken(tmp_path / "t", size=257)


def test_ranks_cannot_hold_merges(tmp_path: Path) -> None:
    own = BytePairTokenizer(BYTES | {b"ab": 300}, merges=[(b"a", b"b")])
    with pytest.raises(ValueError, match="merges by a list of pairs"):
        write_tiktoken(own, tmp_path / "t")


def test_hugging_face_reads_ours_and_we_read_it_back(
    tokenizer: BytePairTokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    write_tokenizer_json(tokenizer, path)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    back = read_tokenizer_json(path)
    assert _same(back, tokenizer)
    for text in [*SAMPLES, END.join(SAMPLES)]:
        ids = tokenizer.encode(text, allowed_special="all").tolist()
        assert theirs.encode(text).ids == ids
        assert back.encode(text, allowed_special="all").tolist() == ids
        assert theirs.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize("name", ["PAD", "é"])  # a token, and what the byte e9 is written as
def test_a_special_token_that_is_written_as_another_is_none_for_hugging_face(
    name: str, tmp_path: Path
) -> None:
    tokenizer = BytePairTokenizer(BYTES | {b"PAD": 300}, special={name: 301})
    assert tokenizer.encode(name, allowed_special="all").tolist() == [301]
    with pytest.raises(ValueError, match=f"the special token '{name}' would have the id (300|233)"):
        write_tokenizer_json(tokenizer, tmp_path / "t.json")


@pytest.mark.parametrize("use_regex", [True, False])
def test_what_hugging_face_trained(use_regex: bool, tmp_path: Path) -> None:
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    pattern = tokenizers.Regex(ORIGINALS["llama3"])
    cut = tokenizers.pre_tokenizers.Split(pattern, "isolated")
    both = tokenizers.pre_tokenizers.Sequence([cut, byte_level])
    theirs.pre_tokenizer = byte_level if use_regex else both
    theirs.decoder = tokenizers.decoders.ByteLevel()
    theirs.train_from_iterator(
        [TEXT],
        tokenizers.trainers.BpeTrainer(
            vocab_size=330,
            special_tokens=[END],
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    theirs.save(str(tmp_path / "t.json"))
    ours = read_tokenizer_json(tmp_path / "t.json")
    assert ours.split == ("gpt2" if use_regex else "llama3")
    assert ours.special == {END: 0} and len(ours) == theirs.get_vocab_size()
    for text in [*SAMPLES, END.join(SAMPLES)]:
        assert ours.encode(text, allowed_special="all").tolist() == theirs.encode(text).ids


def _state(tmp_path: Path) -> dict[str, Any]:
    write_tokenizer_json(BytePairTokenizer(BYTES, special={END: 300}), tmp_path / "t.json")
    return json.loads((tmp_path / "t.json").read_text())


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("model", "type"), "Unigram", "the model is 'Unigram'; only BPE"),
        (("model", "dropout"), 0.1, "dropout=0.1"),
        (("normalizer",), {"type": "NFC"}, "the normalizer 'NFC'"),
        (("pre_tokenizer",), {"type": "Whitespace"}, "pre-tokenizer .*Whitespace"),
        (
            ("pre_tokenizer", "pretokenizers", 0, "pattern"),
            {"Regex": "a+"},
            r"\['a\+'\] is none of",
        ),
        (("added_tokens", 0, "lstrip"), True, r"'<\|end\|>' has lstrip=true"),
        (("model", "vocab", "▁the"), 999, "'▁the' has the character '▁', which stands for no byte"),
        (("model", "merges"), [["a", "b"]], "needs the token b'ab'"),
        (("model",), {}, "KeyError"),
    ],
)
def test_what_cannot_be_read_is_named(
    place: tuple[str | int, ...], value: Any, message: str, tmp_path: Path
) -> None:
    state: Any = _state(tmp_path)
    inner = state
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    (tmp_path / "t.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match=message):
        read_tokenizer_json(tmp_path / "t.json")


def test_a_truncated_tokenizer_json(tmp_path: Path) -> None:
    text = json.dumps(_state(tmp_path))
    (tmp_path / "t.json").write_text(text[:-40])
    with pytest.raises(DataError, match="is no JSON, or truncated: "):
        read_tokenizer_json(tmp_path / "t.json")


def test_tokens_around_texts_are_left_out_and_said(tmp_path: Path) -> None:
    state = _state(tmp_path)
    state["post_processor"] = {"type": "TemplateProcessing"}
    (tmp_path / "t.json").write_text(json.dumps(state))
    with pytest.warns(UserWarning, match="tokens that are added around texts are left out"):
        read_tokenizer_json(tmp_path / "t.json")
