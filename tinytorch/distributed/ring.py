"""All-reduce by hand: a ring of sends and receives.

Source: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", 2009, section 3.
"""

from __future__ import annotations

from itertools import pairwise

from tinytorch.distributed.group import get_rank, get_world_size, isend, recv, torch_view
from tinytorch.tensor import Tensor


def ring_all_reduce(tensor: Tensor) -> None:
    """Put the sum of the ranks' tensors into the tensor of each, in place.

    Rank r sends only to r + 1. In N - 1 steps each of N pieces travels around the ring and grows to
    the whole sum (reduce-scatter); in N - 1 more the sums travel around (all-gather). So each rank
    sends 2 (N - 1) / N of the tensor's bytes, whatever N is, and no all-reduce can send less.

    Args:
        tensor: contiguous, the same shape and dtype on all ranks. If its size is no multiple of N,
            the first pieces are one element longer.

    Raises:
        ProcessGroupError: the memory is not contiguous, so that the pieces would be of a copy.
    """
    torch_view(tensor)
    pieces = ring_pieces(tensor, get_world_size())
    reduce_scatter_ring(pieces)
    all_gather_ring(pieces)


def ring_pieces(tensor: Tensor, count: int) -> list[Tensor]:
    """`count` pieces of nearly the same length that share the tensor's memory."""
    flat = tensor.detach().reshape(-1)
    length, longer = divmod(flat.numel(), count)
    starts = [i * length + min(i, longer) for i in range(count + 1)]
    return [flat[a:b] for a, b in pairwise(starts)]


def reduce_scatter_ring(pieces: list[Tensor]) -> None:
    """Make piece r + 1 of rank r the sum over all ranks. The other pieces are left half done."""
    rank, n = get_rank(), get_world_size()
    for step in range(n - 1):
        outgoing, growing = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        received = growing.clone()
        sending = isend(outgoing, (rank + 1) % n)
        recv(received, (rank - 1) % n)
        sending.wait()
        growing.add_(received)


def all_gather_ring(pieces: list[Tensor]) -> None:
    """Bring piece r + 1 of each rank r to all the others."""
    rank, n = get_rank(), get_world_size()
    for step in range(n - 1):
        sending = isend(pieces[(rank + 1 - step) % n], (rank + 1) % n)
        recv(pieces[(rank - step) % n], (rank - 1) % n)
        sending.wait()
