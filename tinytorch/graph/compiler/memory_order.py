"""Where a value is stored so that nobody has to copy it: layout assignment.

**An order of dimensions** that is not C order:

    %mixed = matmul(%weights, %v)                     (n, heads, length, width)
    %turned = permute(%mixed, dims=(0, 2, 1, 3))      (n, length, heads, width)
    %joined = reshape(%turned, (n, length, heads * width))

No strides can express this reshape of a value in C order, so the value would be copied. If the
product stores its rows in the order that `permute` gives, permute and reshape are both views of
memory. `node.meta["memory_order"]` are the dimensions, the outermost first.

**In the memory of a concatenation**: what only `cat` reads, after permuting and reshaping, is
written where `cat` would copy it to. `cat.meta["parts_in_place"]` are the nodes that write there;
such a `cat` is no kernel call. A kernel whose flat result is only read in parts, which one `cat`
puts together (the gradients of attention for query, key and value), may write these parts there:

    %flat = scaled_dot_product_attention_backward(...)
    %dq = reshape(slice(%flat, 0, m), ...), %dk = reshape(slice(%flat, m, n), ...), ...
    %whole = cat(%dq, %dk, %dv)

Then `flat.meta["in_parts"]` is set, and the parts are at the views of `readers_of_parts(flat)`.

Results of a graph stay as they are: their memory leaves the call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinytorch.graph.ir import Graph, Node
from tinytorch.graph.layout import (
    Buffer,
    Memory,
    StridedView,
    contiguous_view,
    view_of,
)
from tinytorch.graph.semantics import TINYTORCH
from tinytorch.op import OPS, Op
from tinytorch.shapes import contiguous_strides

CanWrite = Callable[..., bool]
"""Asked for a node and a view, whether its kernel can write its result there; or with several
views, whether it can write to them the parts of its result, one after the other."""


def view_in_memory(node: Node, buffer: Buffer, offset: int) -> StridedView:
    """The view of the whole value of a node that begins there, in its order."""
    meta, order = node.meta["tensor_meta"], node.meta.get("memory_order")
    if order is None:
        return contiguous_view(buffer, offset, meta)
    outer_to_inner = contiguous_strides(tuple(meta.shape[d] for d in order), meta.dtype.itemsize)
    strides = tuple(outer_to_inner[order.index(d)] for d in range(len(order)))
    return StridedView(buffer, offset, meta.shape, strides, meta.dtype)


def _anywhere(node: Node) -> StridedView:
    return view_in_memory(node, Buffer(Memory.ARENA), 0)


def assign_memory_orders(graph: Graph, results: list[Node], can_write: CanWrite) -> None:
    """Choose an order for the values that this saves a copy.

    Those are values that one `permute` alone reads, before a `reshape` that no strides can express.

    Args:
        results: of the graph.
        can_write: asked for a node and a view, whether its kernel can write its result there.
    """
    for node in _made(graph, results):
        (reader,) = node.users
        if not _calls(reader, "permute") or not _must_copy(node, reader):
            continue
        node.meta["memory_order"] = tuple(reader.kwargs["dims"])
        if not can_write(node, _anywhere(node)):
            del node.meta["memory_order"]


def _made(graph: Graph, results: list[Node]) -> list[Node]:
    """The nodes that make a value in memory of its own, which one node reads, and no caller."""
    roots = TINYTORCH.storages(graph).roots
    held = {roots[node] for node in results}
    return [
        node
        for node in graph.find_nodes(op="call_function")
        if roots[node] is node and node not in held and len(node.users) == 1
    ]


def _calls(node: Node, *names: str) -> bool:
    return isinstance(node.target, Op) and node.target.name in names


def _must_copy(node: Node, permute: Node) -> bool:
    """Some reshape of the permuted value is no view of it."""
    turned = view_of(permute.target, _anywhere(node), permute.kwargs)
    assert turned is not None, "strides express every order"
    return any(
        _calls(user, "reshape") and view_of(user.target, turned, user.kwargs) is None
        for user in permute.users
    )


# -- concatenation ---------------------------------------------------------------------------------


def place_parts(graph: Graph, results: list[Node], can_write: CanWrite) -> None:
    """Let the parts of a concatenation be written into it, where all of them can be.

    Args:
        results, can_write: as for `assign_memory_orders`.
    """
    made = set(_made(graph, results))
    roots = TINYTORCH.storages(graph).roots
    held = {roots[node] for node in results}
    for cat in graph.find_nodes(op="call_function"):
        if not _calls(cat, "cat") or cat in held:
            continue
        whole = _anywhere(cat)
        views = _views_of_parts(cat, whole)
        if len({node for node, _ in views}) == len(views) and all(
            view is not None
            and node in made
            and "parts_in_place" not in node.meta
            and can_write(node, view)
            for node, view in views
        ):
            cat.meta["parts_in_place"] = tuple(node for node, _ in views)
            continue
        flat, parts = _flat_source(views), [view for _, view in views if view is not None]
        if (
            flat is not None
            and roots[flat] is flat
            and flat.op == "call_function"
            and flat not in held
            and len(parts) == len(views)
            and can_write(flat, *parts)
        ):
            cat.meta["parts_in_place"] = (flat,)
            flat.meta["in_parts"] = True


def views_of_parts(cat: Node, whole: StridedView) -> dict[Node, StridedView]:
    """Where the parts of a concatenation that is stored there are to be written."""
    found = {node: view for node, view in _views_of_parts(cat, whole) if view is not None}
    (first, *_) = cat.meta["parts_in_place"]
    if first.meta.get("in_parts"):  # all of them together are all of this memory
        found[first] = contiguous_view(whole.buffer, whole.offset, first.meta["tensor_meta"])
    return found


def readers_of_parts(flat: Node) -> list[Node]:
    """The nodes that show the parts of a value in the shapes they are written in, in order."""
    slices = sorted(flat.users, key=lambda node: node.kwargs["bounds"])
    return [reader for node in slices for reader in node.users]


def _flat_source(views: list[tuple[Node, StridedView | None]]) -> Node | None:
    """The flat value whose slices, side by side, these reshape; all that read it; else None."""
    slices = [node.args[0] for node, _ in views if _calls(node, "reshape") and len(node.users) == 1]
    if len(slices) != len(views) or not all(
        isinstance(node, Node) and _calls(node, "slice") and len(node.users) == 1 for node in slices
    ):
        return None
    flat, end = slices[0].args[0], 0
    if len(flat.meta["tensor_meta"].shape) != 1 or set(flat.users) != set(slices):
        return None
    for node in slices:
        ((start, stop, step),) = node.kwargs["bounds"]
        if start != end or step != 1:
            return None
        end = stop
    return flat if end == flat.meta["tensor_meta"].size else None


def _views_of_parts(cat: Node, whole: StridedView) -> list[tuple[Node, StridedView | None]]:
    """For each part the node that makes it, and the view to which it is written, if there is one.

    From the part's slice of the whole the way leads back through what the value is seen through, as
    far as to a slice of another value.
    """
    dim, start, found = cat.kwargs["dim"], 0, []
    for part in cat.args:
        shape, node = part.meta["tensor_meta"].shape, part
        offset = whole.offset + start * whole.strides[dim]
        view: StridedView | None = replace(whole, offset=offset, shape=shape)
        while (
            view is not None
            and _calls(node, "permute", "reshape")
            and len(node.users) == 1
            and not _calls(node.args[0], "slice")
        ):
            view, node = _before(node, view), node.args[0]
        found.append((node, view))
        start += shape[dim]
    return found


def _before(node: Node, view: StridedView) -> StridedView | None:
    """The view of the operand of a permute or reshape whose result is this view."""
    if node.target.name == "reshape":
        return view_of(OPS["reshape"], view, {"shape": node.args[0].meta["tensor_meta"].shape})
    dims = node.kwargs["dims"]
    return view_of(OPS["permute"], view, {"dims": tuple(dims.index(d) for d in range(len(dims)))})
