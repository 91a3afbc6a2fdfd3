"""ATen operators as Tensor code, against PyTorch on the samples of its own test suite (OpInfo)."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import tinytorch
from tests.torch_ops import pytorchs_own_samples
from tinytorch.errors import TinyTorchError
from tinytorch.fx.convert.aten import ATEN, aten
from tinytorch.fx.convert.aten_module import _converted, aten_name
from tinytorch.fx.convert.exchange import meta_from_torch, tensor_from_torch, tensor_to_torch
from tinytorch.fx.convert.from_torch import from_torch
from tinytorch.tensor import Tensor

REFUSALS = (TinyTorchError, NotImplementedError, TypeError, ValueError, IndexError)
CALLS_PER_OPERATOR = 20
SAMPLES_PER_OP = 5
# what OpInfo reaches only through other operators, in autograd, or not at all
BY_OTHER_TESTS = {
    "_assert_tensor_metadata", "_log_softmax_backward_data",
    "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention_for_cpu_backward", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "col2im", "reflection_pad2d", "reflection_pad3d", "replication_pad3d",
    "one_hot", "var.dim",
    "arange.start", "argsort", "argsort.stable", "avg_pool2d_backward", "batch_norm",
    "bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar", "contiguous", "conv2d",
    "convolution_backward", "copy", "copysign.Scalar", "searchsorted.Scalar",
    "div.Scalar_mode", "embedding_dense_backward", "group_norm",
    "fmod.Scalar", "gt.Scalar", "layer_norm", "lift_fresh_copy", "linear", "matmul", "max_pool2d",
    "pow.Scalar", "reshape", "scaled_dot_product_attention", "scatter.value", "select_backward",
    "sigmoid_backward", "slice_backward", "tanh_backward", "threshold_backward",
    "empty.memory_format", "empty_permuted", "empty_strided",
    "transformers::grouped_mm_fallback", "transformers::grouped_mm_fallback_backward",
    "upsample_bilinear2d.vec", "upsample_linear1d.vec", "upsample_nearest1d.vec",
    "upsample_nearest2d.vec", "where.ScalarOther", "where.ScalarSelf",
}  # fmt: skip

#: Values and indices; which of equal values comes first PyTorch does not say.
INDICES_OF_TIES = {"topk", "sort", "max.dim", "min.dim", "median.dim", "kthvalue"}


def _copied(nest: Any) -> Any:
    return pytree.tree_map(lambda a: a.detach().clone() if isinstance(a, torch.Tensor) else a, nest)


def ours(name: str, args: Any, kwargs: Any) -> Any:
    """What our function makes of PyTorch's arguments."""
    given = pytree.tree_map(
        lambda a: tensor_from_torch(a) if isinstance(a, torch.Tensor) else a, (args, kwargs)
    )
    return ATEN[name](*_converted(given[0]), **_converted(given[1]))


def compare(name: str, args: Any, kwargs: Any, expected: Any) -> bool:
    """Whether it was compared: a call that we refuse, or whose dtype we do not keep, is not.

    (`support.unsupported_reason` finds those on shapes alone and leaves them to PyTorch.)
    """
    tensors = [t for t in pytree.tree_leaves((args, kwargs, expected)) if torch.is_tensor(t)]
    try:
        metas = [meta_from_torch(t) for t in tensors]
        with np.errstate(all="ignore"):
            result = ours(name, args, kwargs)
    except REFUSALS:
        return False
    mine = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor)]
    theirs = [t for t in pytree.tree_leaves(expected) if torch.is_tensor(t)]
    if [t.meta for t in mine] != metas[len(metas) - len(theirs) :]:
        return False
    if name in INDICES_OF_TIES:
        mine, theirs = mine[:1], theirs[:1]
    for a, b in zip(mine, theirs, strict=True):
        if b.dtype == torch.bfloat16:  # which NumPy has not
            a, b = a.float(), b.float()
        np.testing.assert_allclose(
            a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4, err_msg=f"{name}{args}{kwargs}"
        )
    return True


class Recorder(TorchDispatchMode):
    """Keeps the calls of operators that are in our table."""

    def __init__(self, counts: Counter[str]) -> None:
        super().__init__()
        self.counts = counts
        self.calls: list[tuple[str, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _copied((args, kwargs or {}))
        out = func(*args, **(kwargs or {}))
        name = aten_name(func)
        is_undefined = name is not None and name.startswith("empty")  # it may hold anything
        if name == "as_strided":  # ours are in order; `support` refuses the others
            is_undefined = not args[0].is_contiguous() or args[0].storage_offset() != 0
        if name in ATEN and not is_undefined and self.counts[name] < CALLS_PER_OPERATOR:
            self.counts[name] += 1
            self.calls.append((name, *given, _copied(out)))
        return out


@pytest.mark.parametrize(
    "every",
    [
        pytest.param(4, marks=pytest.mark.slow(seconds=30)),
        pytest.param(1, marks=pytest.mark.exhaustive),
    ],
)
def test_operators_agree_with_pytorch_on_its_own_samples(every: int) -> None:
    """On those of every n-th of its operators, and so of all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's own test utilities
        samples = list(pytorchs_own_samples())[::every]
        counts: Counter[str] = Counter()
        compared: Counter[str] = Counter()
        with tinytorch.using_backend("numpy"):
            for dtype in (torch.float32, torch.int64, torch.bool):
                for info in samples:
                    if dtype in info.dtypes:
                        for name, args, kwargs, expected in calls_of_samples(info, dtype, counts):
                            compared[name] += compare(name, args, kwargs, expected)
    assert every > 1 or ATEN.keys() - compared.keys() == BY_OTHER_TESTS
    assert compared.total() > 2000 / every


def calls_of_samples(
    info: Any, dtype: torch.dtype, counts: Counter[str]
) -> Iterator[tuple[str, Any, Any, Any]]:
    """Operators of ours, their arguments and results, as the samples of an OpInfo call them."""
    try:
        made = info.sample_inputs("cpu", dtype, requires_grad=False)
        samples = list(islice(made, SAMPLES_PER_OP))
    except Exception:  # some need libraries that are not there
        return
    for sample in samples:
        recorder = Recorder(counts)
        try:
            with recorder:
                info(sample.input, *sample.args, **sample.kwargs)
        except Exception:  # a sample that PyTorch itself cannot run on the CPU
            continue
        yield from recorder.calls


def overload_of(name: str) -> Any:
    """PyTorch's operator of a name in our table: the inverse of `aten_name`."""
    namespace, _, rest = name.rpartition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace or "aten"), packet), overload or "default")


def call(name: str, *args: Any, **kwargs: Any) -> None:
    """Compare one call that PyTorch makes by name."""
    with tinytorch.using_backend("numpy"):
        assert compare(name, args, kwargs, overload_of(name)(*args, **kwargs)), name


def test_operators_that_only_autograd_and_export_use() -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 3, 6, 5), torch.randn(4, 3, 3, 2), torch.randn(4)
    windows = ([2, 1], [1, 0], [1, 1], False, [0, 0], 1)
    out = torch.ops.aten.convolution(x, w, b, *windows)
    grad = torch.randn_like(out)
    call("convolution_backward", grad, x, w, [4], *windows, [True, True, True])
    mean, var = torch.randn(3), torch.rand(3) + 0.5
    affine = (torch.randn(3), torch.randn(3), mean, var)
    call("_native_batch_norm_legit_functional", x, *affine, True, 0.1, 1e-5)
    call("_native_batch_norm_legit_functional", x, *affine, False, 0.1, 1e-5)
    call("_native_batch_norm_legit_no_training", x, *affine, 0.1, 1e-5)
    pooled = torch.ops.aten.avg_pool2d(x, [2, 2], [1, 1], [1, 1])
    call("avg_pool2d_backward", pooled, x, [2, 2], [1, 1], [1, 1], False, True, None)
    for ceil in ([2, 2], [2, 2], [0, 0], [1, 1]), ([3, 2], [2, 3], [1, 1], [1, 2]):
        call("max_pool2d_with_indices", x, *ceil, True)
        grad, places = torch.ops.aten.max_pool2d_with_indices(x, *ceil, True)
        call("max_pool2d_with_indices_backward", grad, x, *ceil, True, places)
    call("avg_pool2d", x, [2, 2], [2, 2], [1, 1], True, False)
    call("embedding_dense_backward", torch.randn(3, 4), torch.tensor([1, 0, 1]), 5, 1, False)
    call("scatter.value", torch.zeros(3, 4), 1, torch.tensor([[0], [2], [3]]), -1.0)
    twice = torch.tensor([[0, 2, 0], [0, 1, 1]])  # the last one is put
    call("scatter.value", torch.zeros(2, 3), 1, twice, float("inf"))
    call("scatter.src", torch.zeros(2, 3), 1, twice, torch.randn(3, 4))
    call(
        "scatter.src",
        torch.zeros(2, 3, dtype=torch.int64),
        1,
        twice,
        2**62 + torch.arange(6).view(2, 3),
    )
    call("index_put", torch.zeros(3, 4), [None, torch.tensor([2, -1, 2])], torch.randn(3, 3))
    call(
        "index_put",
        torch.zeros(2, 2),
        [torch.tensor([[True, False], [True, True]])],
        torch.randn(3),
    )
    call("select_backward", torch.randn(3, 5), [3, 4, 5], 1, -1)
    call("slice_backward", torch.randn(3, 2), [3, 6], 1, 1, 5, 2)
    y = torch.randn(4, 5)
    for name in ("tanh_backward", "sigmoid_backward"):
        call(name, torch.randn(4, 5), y.sigmoid())
    call("threshold_backward", torch.randn(4, 5), y, 0.0)
    call("_log_softmax_backward_data", torch.randn(4, 5), y.log_softmax(1), 1, torch.float32)
    call("gt.Scalar", y, 0.5)
    call("_native_batch_norm_legit.no_stats", x, affine[0], affine[1], True, 0.1, 1e-5)
    call("group_norm", torch.randn(2, 4, 5), 2, torch.randn(4), torch.randn(4), 1e-5)
    call("argsort", y, 0, True)
    call("argsort.stable", torch.tensor([2, 1, 2, 1]), stable=True, dim=-1)
    call("copy", torch.zeros(4, 5), y)


def test_operators_of_mixtures_of_experts_and_windows() -> None:
    torch.manual_seed(0)
    ids = torch.tensor([0.0, 3, 3, 1, 3, 5, -1])  # the last two are in no interval
    call("histc", ids, 4, 0, 3)
    call("cumsum", torch.tensor([2, 1, 3]), 0, dtype=torch.int32)
    call("fmod.Scalar", torch.tensor([-7, 7, 3]), 4)
    call("max.dim", torch.tensor([[1.0, 5, 2], [7, 0, 6]]), 1, True)
    call("as_strided", torch.arange(12.0), [2, 3, 2], [4, 1, 2], 1)
    for shape in ((), (2, 3)):
        with tinytorch.using_backend("numpy"):
            assert ours("empty.memory_format", (shape,), {"dtype": torch.int64}).shape == shape
            assert ours("empty_permuted", (shape, range(len(shape))), {}).shape == shape


@pytest.mark.parametrize("counts", [[2, 0, 3], [0, 0, 5], [1, 1, 1]])
def test_rows_times_the_matrix_of_their_expert(counts: list[int]) -> None:
    """The last rows belong to no expert where the counts do not add up to all."""
    pytest.importorskip("transformers.integrations.moe")
    torch.manual_seed(0)
    x, weight, grad = torch.randn(5, 4), torch.randn(3, 4, 2), torch.randn(5, 2)
    ends = torch.tensor(counts).cumsum(0, dtype=torch.int32)
    library = torch.ops.transformers
    given = (("grouped_mm_fallback", (x, weight, ends)),
             ("grouped_mm_fallback_backward", (x, weight, ends, grad)))  # fmt: skip
    with tinytorch.using_backend("numpy"):
        for name, args in given:
            expected = getattr(library, name)(*args)
            assert compare(f"transformers::{name}", args, {}, expected), name


def test_resizing_by_size_and_by_factor() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 6, 5)
    for size, factors in (([9], None), (None, [1.5])):
        call("upsample_nearest1d.vec", x[:, 0], size, factors)
        call("upsample_linear1d.vec", x[:, 0], size, False, factors)
    for size, factors in (([9, 4], None), (None, [2.0, 3.0])):
        call("upsample_nearest2d.vec", x, size, factors)
        call("upsample_bilinear2d.vec", x, size, False, factors)


@pytest.mark.parametrize("mask", [None, "bool", "float"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_forward_and_backward(mask: str | None, is_causal: bool) -> None:
    if mask and is_causal:
        pytest.skip("PyTorch takes one or the other")
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 2, 6, 4) for _ in range(3))
    given = {
        None: None, "bool": torch.rand(2, 1, 6, 6) > 0.3, "float": torch.randn(2, 1, 6, 6)
    }[mask]  # fmt: skip
    if mask == "bool":
        given[..., 0] = True  # no row without anything to attend to
        given = torch.zeros(given.shape).masked_fill(~given, -torch.inf)
    options = {"attn_mask": given, "scale": 0.3}
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    call("_scaled_dot_product_flash_attention_for_cpu", q, k, v, 0.0, is_causal, **options)
    out, logsumexp = forward(q, k, v, 0.0, is_causal, **options)
    call(
        "_scaled_dot_product_flash_attention_for_cpu_backward", torch.randn_like(out), q, k, v, out,
        logsumexp, 0.0, is_causal, **options,
    )  # fmt: skip
    with pytest.raises(NotImplementedError, match="attention with dropout"):
        ours("_scaled_dot_product_flash_attention_for_cpu", (q, k, v, 0.5), {})


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_query_that_sees_no_key_gives_0_and_has_no_gradient(kind: str) -> None:
    """As in a batch that is padded, with a window of few keys."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]]).bool()
    if kind == "float":
        mask = torch.zeros(3, 3).masked_fill(~mask, -torch.inf)

    class Attention(torch.nn.Module):
        def forward(self, *parts: torch.Tensor) -> torch.Tensor:
            attend = torch.nn.functional.scaled_dot_product_attention
            return attend(*parts, attn_mask=mask)

    parts = [torch.randn(1, 2, 3, 4, generator=generator, requires_grad=True) for _ in range(3)]
    expected = Attention()(*parts)
    wanted = [expected, *torch.autograd.grad(expected.sin().sum(), parts)]
    compiled = torch.compile(Attention(), backend="tinytorch", options={"backend": "numpy"})(*parts)
    found = [compiled, *torch.autograd.grad(compiled.sin().sum(), parts)]
    with tinytorch.using_backend("numpy"):
        ours = [tensor_from_torch(x).requires_grad_() for x in parts]
        (result,) = from_torch(Attention(), tuple(parts))(*ours)
        result.sin().sum().backward()
    for a, b, c in zip(wanted, found, [result, *(x.grad for x in ours)], strict=True):
        torch.testing.assert_close(b, a)
        torch.testing.assert_close(tensor_to_torch(c.detach()), a.detach())


def test_a_name_is_entered_once() -> None:
    with pytest.raises(ValueError, match="there is a function for aten::relu already"):
        aten("relu")(lambda a: a)
