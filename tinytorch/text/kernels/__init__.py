"""Byte-pair encoding compiled: what the `optimized` backend runs in place of `bpe`.

Denser than the rest of `text`. Kernels allocate nothing: they return where they have got to when an
array is full, and Python makes it larger. Text is followed by `PADDING` zero bytes, so that eight
bytes can be read at once anywhere, and a run of letters ends where the text does.

words     how kernels are compiled; eight bytes at once
scan      where a piece ends
tables    pieces and pairs by hash
heap      the smallest of many
merging   the ids of a piece
encoder   `Encoder`: text to ids, with a cache of pieces
counting  how often each piece occurs
trainer   pairs counted and merged
"""
