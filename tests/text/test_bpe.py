from __future__ import annotations

from collections import Counter

from tinytorch.text import bpe


def test_of_equally_frequent_pairs_the_smallest_is_merged() -> None:
    vocabulary = bpe.train({b"ba": 1, b"ab": 1, b"aa": 1}, 259)
    assert list(vocabulary)[256:] == [b"aa", b"ab", b"ba"]


def test_counts_decide_before_that() -> None:
    assert list(bpe.train({b"zz": 2, b"aa": 1}, 257))[256:] == [b"zz"]


def test_training_stops_where_nothing_is_left() -> None:
    assert list(bpe.train({b"abc": 1}, 1000))[256:] == [b"ab", b"abc"]


def test_a_merge_that_gives_a_known_token_adds_nothing() -> None:
    # "abc" comes of ab + c first; a + bc joins to the same token later
    pieces = {b"ab": 50, b"abc": 40, b"bc": 30, b"xbc": 30, b"abcd": 1}
    vocabulary = bpe.train(pieces, 300)
    assert len(vocabulary) == len(set(vocabulary.values()))
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))


def test_counts_of_overlapping_pairs() -> None:
    assert bpe.count_pairs({(b"a",) * 4: 3}) == Counter({(b"a", b"a"): 9})
    assert bpe.merge_pair((b"a",) * 5, (b"a", b"a")) == (b"aa", b"aa", b"a")


def test_the_smallest_id_is_merged_first_and_the_leftmost() -> None:
    vocabulary = {bytes([b]): b for b in range(256)} | {b"bc": 256, b"ab": 257, b"aa": 258}
    assert bpe.encode_piece(b"abcd", vocabulary) == [97, 256, 100]
    assert bpe.encode_piece(b"aaaab", vocabulary) == [258, 97, 257]


def test_a_whole_piece_is_its_token_even_where_merges_would_not_reach_it() -> None:
    vocabulary = {bytes([b]): b for b in range(256)} | {b"abc": 256}
    assert bpe.encode_piece(b"abc", vocabulary) == [256]
    assert bpe.encode_piece(b"abcd", vocabulary) == [97, 98, 99, 100]
