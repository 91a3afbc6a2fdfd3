"""The products of the event `matmul`, on all cores."""

from tito.compete.events.matmul.task import Torch, call, make, reference

__all__ = ["Torch", "call", "make", "reference"]
