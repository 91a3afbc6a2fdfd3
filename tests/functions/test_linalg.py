from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

import tinytorch
from tests.torch_compare import assert_like_torch
from tinytorch.errors import DTypeError, ShapeError

SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((0,), (0,)),
]


@pytest.mark.parametrize("a, b", SHAPES)
def test_matmul(a, b, rng):
    x, y = rng.standard_normal(a), rng.standard_normal(b)
    assert_like_torch(tinytorch.matmul, torch.matmul, x, y)
    assert_like_torch(lambda x, y: x @ y, None, x, y)


def test_matmul_with_arrays_and_integers(rng):
    a, b = rng.integers(-5, 5, (2, 3)), rng.integers(-5, 5, (3, 2))
    assert_like_torch(tinytorch.matmul, torch.matmul, a, b)
    x = tinytorch.tensor(a)
    np.testing.assert_array_equal((x @ b).numpy(), a @ b)
    np.testing.assert_array_equal((a @ tinytorch.tensor(b)).numpy(), a @ b)
    with pytest.raises(DTypeError, match="matmul is not defined for bool"):
        tinytorch.tensor([[True]]) @ tinytorch.tensor([[True]])


def test_dot_and_outer(rng):
    a, b = rng.standard_normal((2, 4))
    assert_like_torch(tinytorch.dot, torch.dot, a, b)
    assert_like_torch(tinytorch.outer, torch.outer, a, b[:3])


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda z: z(2, 3) @ z(2, 3), "matmul: shapes (2, 3) and (2, 3) do not fit: the first"),
        (lambda z: z(2) @ z(3), "matmul: shapes (2,) and (3,) do not fit: 2 and 3 should be equal"),
        (lambda z: z(()) @ z(3), "matmul: shapes () and (3,): an operand is 0-d; use *"),
        (lambda z: z(2, 2, 3) @ z(4, 3, 2), "matmul (batch dimensions): shapes (2,) and (4,)"),
        (lambda z: z(2, 2).dot(z(2)), "dot: shapes (2, 2) and (2,) must be 1-d"),
        (lambda z: z(2).outer(z(2, 2)), "outer: shapes (2,) and (2, 2) must be 1-d"),
    ],
)
def test_errors(call, text):
    with pytest.raises(ShapeError) as caught:
        call(tinytorch.zeros)
    assert text in str(caught.value)


# -- einsum ----------------------------------------------------------------------------------------

EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->i", (2, 3)),
    ("ij", (2, 3)),
    ("ba", (2, 3)),
    ("ii", (3, 3)),
    ("ii->i", (3, 3)),
    ("iij->j", (3, 3, 2)),
    ("iii->i", (2, 2, 2)),
    ("i,j->ij", (2,), (3,)),
    ("i,i", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("i,ij,j->", (2,), (2, 3), (3,)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
    ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ik", (5, 1, 2, 3), (6, 3, 4)),
    ("...i,...i->...", (4, 3), (3,)),
    ("i...->...", (3, 2, 2)),
    ("...", (2, 3)),
    ("...i->i...", (2, 3, 4)),
    (" i j , j k -> k i ", (2, 3), (3, 4)),
    ("ij,kj->ik", (0, 3), (2, 3)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("aB,Bc->ac", (2, 3), (3, 2)),
    ("ii,ij->j", (3, 3), (3, 2)),
    (",i->i", (), (3,)),
    ("ij,ij->", (2, 3), (2, 3)),
]


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EQUATIONS])
def test_einsum(equation, shapes, rng):
    arrays = [rng.standard_normal(s) for s in shapes]
    assert_like_torch(lambda *x: tinytorch.einsum(equation, *x),
                      lambda *x: torch.einsum(equation, *x), *arrays)  # fmt: skip


@pytest.mark.parametrize(
    ("lists", "result"),
    [
        ([[0, 1], [1, 2]], [0, 2]),
        ([[0, 1], [1, 2]], None),
        ([[30, 1], [1, 2]], None),
        ([[..., 1], [1, 2]], [2, ...]),
        ([[0, 0]], []),
    ],
)
def test_einsum_with_numbers_for_letters(lists, result, rng):
    arrays = [rng.standard_normal((3, 3)) for _ in lists]

    def use(einsum):
        end = () if result is None else (result,)
        return lambda *x: einsum(*[a for pair in zip(x, lists, strict=True) for a in pair], *end)

    assert_like_torch(use(tinytorch.einsum), use(torch.einsum), *arrays)


@given(data=st.data())
def test_einsum_of_any_equation(data):
    sizes = {"a": 2, "b": 3, "c": 1, "d": 2}
    term = st.lists(st.sampled_from("abcd"), min_size=0, max_size=3).map("".join)
    terms = data.draw(st.lists(term, min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    result = "".join(data.draw(st.permutations(used))[: data.draw(st.integers(0, len(used)))])
    equation = ",".join(terms) + (f"->{result}" if data.draw(st.booleans()) else "")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([sizes[c] for c in t]) for t in terms]
    assert_like_torch(lambda *x: tinytorch.einsum(equation, *x),
                      lambda *x: torch.einsum(equation, *x), *arrays)  # fmt: skip


@pytest.mark.parametrize(
    "equation, shapes, text",
    [
        ("ij,jk", [(2, 3)], "einsum: 'ij,jk' has 2 terms for 1 operands"),
        ("ij->ik", [(2, 3)], "einsum: the result of 'ij->ik' repeats a letter or has a new one"),
        ("ij->ii", [(2, 3)], "einsum: the result of 'ij->ii' repeats a letter"),
        ("ijk->i", [(2, 3)], "term 'ijk' of 'ijk->i' does not fit an operand of 2 dimensions"),
        ("i1->i", [(2, 3)], "term 'i1' of 'i1->i' does not fit"),
        ("ij,jk->ik", [(2, 3), (4, 5)], "einsum: 'j' is 3 in one operand and 4 in another"),
        ("ii->i", [(2, 3)], "einsum: 'i' is 2 in one operand and 3 in another"),
    ],
)
def test_einsum_errors(equation, shapes, text):
    with pytest.raises(ValueError) as caught:
        tinytorch.einsum(equation, *map(tinytorch.zeros, shapes))
    assert text in str(caught.value)


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", None])
@pytest.mark.parametrize("rows", [(4, 3), (30, 3), (3, 26), (2, 5, 27, 4)])
def test_cdist_by_products_and_by_differences(rows, mode, rng):
    a = rng.standard_normal((*rows[:-2], rows[-2], 6))
    b = rng.standard_normal((*rows[:-2], rows[-1], 6))
    options = {} if mode is None else {"compute_mode": mode}
    assert_like_torch(
        lambda a, b: tinytorch.cdist(a, b, **options),
        lambda a, b: torch.cdist(a, b, **options),
        a,
        b,
    )


def test_cdist_of_many_rows_rounds_as_pytorchs_and_of_equal_ones_has_a_gradient(rng):
    near = (1000 + 1e-3 * rng.standard_normal((40, 4))).astype(np.float32)
    x = tinytorch.from_numpy(near).requires_grad_()
    exact = tinytorch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    wide = near.astype(np.float64)
    np.testing.assert_allclose(
        exact.detach().numpy(), np.linalg.norm(wide[:, None] - wide[None], axis=-1), 1e-3, 1e-5
    )
    rounded = tinytorch.cdist(x, x)
    assert not rounded.isnan().any()
    rounded.sum().backward()
    assert x.grad is not None and not x.grad.isnan().any()


@pytest.mark.parametrize(
    ("a", "b"),
    [((), ()), ((3,), ()), ((3,), (4,)), ((2, 3), (4, 5)), ((2, 3), (5,)), ((3,), (2, 1, 4)),
     ((2, 1, 3), (1, 3, 2)), ((0, 2), (3, 1))],
)  # fmt: skip
def test_kron(a, b, rng):
    x, y = (rng.standard_normal(shape) for shape in (a, b))
    assert_like_torch(lambda x, y: x.kron(y), None, x, y)


@pytest.mark.parametrize(("shape", "dim"), [((3,), 0), ((5, 3), -1), ((3, 5), 0), ((2, 3, 4), 1)])
def test_cross(shape, dim, rng):
    x, y = rng.standard_normal(shape), rng.standard_normal(shape)
    assert_like_torch(lambda x, y: x.cross(y, dim=dim), None, x, y)


@pytest.mark.filterwarnings("ignore:Using torch.cross without")
@pytest.mark.parametrize("shape", [(3, 3), (3, 2), (2, 3), (3, 2, 3), (2, 3, 3)])
def test_cross_without_a_dim_is_along_the_first_that_has_three(shape, rng):
    x, y = rng.standard_normal((2, *shape))
    assert_like_torch(lambda x, y: x.cross(y), None, x, y)


def test_cdist_refuses_another_mode():
    x = tinytorch.ones(2, 3)
    with pytest.raises(ValueError, match=r"compute_mode is 'use_mm_for_euclid.*not 'fast'"):
        tinytorch.cdist(x, x, compute_mode="fast")
