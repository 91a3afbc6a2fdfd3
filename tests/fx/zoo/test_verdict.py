from __future__ import annotations

import pytest
import torch

from tinytorch.errors import TinyTorchError
from tinytorch.fx.zoo.verdict import CORNER, Again, judge, of_error, of_peer
from tinytorch.jit.threads import ThreadStartError

EXACT = torch.linspace(1, 2, 100, dtype=torch.float64) * torch.pi
EAGER = EXACT.float()


def verdict_of(found: list[torch.Tensor | None], eager: list[torch.Tensor | None]) -> str:
    return judge(found, eager, lambda: [EXACT] * len(eager)).verdict


def test_equal_to_the_last_bit_needs_no_float64():
    def never() -> list[torch.Tensor]:
        raise AssertionError

    nan = torch.tensor([1.0, float("nan")])
    assert judge([EAGER, None, nan], [EAGER.clone(), None, nan.clone()], never).verdict == (
        "bit-equal"
    )


def test_an_error_like_eagers_is_within_and_a_larger_one_is_wrong():
    other = EAGER * (1 + 2**-24)
    nearby = torch.nextafter(EAGER, torch.zeros(()))
    assert verdict_of([other], [EAGER]) in ("bit-equal", "within")
    assert verdict_of([nearby], [EAGER]) == "within"
    assert verdict_of([EAGER + 1e-3], [EAGER]) == "WRONG"
    assert verdict_of([EAGER.flip(0)], [EAGER]) == "WRONG"


def test_another_form_is_wrong_whatever_the_values():
    assert verdict_of([EAGER.double()], [EAGER]) == "WRONG"
    assert verdict_of([EAGER[:50]], [EAGER]) == "WRONG"
    assert verdict_of([None], [EAGER]) == "WRONG"
    assert verdict_of([EAGER, EAGER], [EAGER]) == "WRONG"
    endless = EAGER.clone()
    endless[3] = float("inf")
    assert verdict_of([endless], [EAGER]) == "WRONG"
    whole = torch.arange(3)
    assert judge([whole], [whole + 1], lambda: [whole]).verdict == "WRONG"


def test_without_float64_a_tolerance_judges_and_says_so():
    found = judge([EAGER + 1e-3], [EAGER], lambda: None)
    assert found.verdict == "WRONG" and "no float64" in found.detail
    found = judge([EAGER + 1e-5], [EAGER], lambda: None)
    assert found.verdict == "within" and "no float64" in found.detail
    whole = torch.arange(3)
    assert judge([whole], [whole + 1], lambda: None).verdict == "WRONG"


def test_float64_that_took_another_way_does_not_judge():
    other = EXACT.flip(0)
    assert judge([EAGER * 1.5], [EAGER], lambda: [other]).verdict == "WRONG"
    assert judge([torch.nextafter(EAGER, 0 * EAGER)], [EAGER], lambda: [other]).verdict == "within"
    assert "no float64" in judge([EAGER + 1e-3], [EAGER], lambda: [EXACT[:9]]).detail


def test_our_own_errors_are_refusals_and_others_crash():
    assert of_error(TinyTorchError("not that way")).verdict == "refused"
    assert of_error(KeyError("oops")).verdict == "crash"
    assert of_error(MemoryError("too much")).verdict == "memory"
    assert of_error(ThreadStartError("can't start new thread: for lack of memory")).verdict == (
        "memory"  # of which a child has only so much
    )
    assert of_error(RuntimeError("can't start the engine")).verdict == "crash"
    assert of_peer(KeyError("oops")).verdict == "refused"


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_a_gradient_that_should_be_zero_is_judged_by_the_largest_of_all(scale: float):
    noise = torch.full((3,), 1e-9 * scale)
    exact = [EXACT, torch.zeros(3, dtype=torch.float64)]
    assert judge([EAGER, noise], [EAGER, -noise], lambda: exact).verdict == "within"


def test_where_a_gradient_jumps_eager_on_nearby_inputs_shows_how_far():
    jump = EAGER + 1e-3  # the other side of a ReLU's corner
    found = judge([jump], [EAGER], lambda: [EXACT], lambda: [[EAGER], [jump]])
    assert found.verdict == "within" and "largest of 3 runs of eager's" in found.detail
    assert judge([EAGER + 1e-1], [EAGER], lambda: [EXACT], lambda: [[jump]]).verdict == "WRONG"
    assert judge([jump], [EAGER], lambda: [EXACT], lambda: [[EAGER]]).verdict == "WRONG"

    def never() -> list[list[torch.Tensor]]:
        raise AssertionError

    other = torch.nextafter(EAGER, torch.zeros(()))
    assert judge([other], [EAGER], lambda: [EXACT], never).verdict == "within"


OFF, RIGHT = EAGER + 1e-3, [EAGER.nextafter(EAGER * 0)]


def tried_again(wide: list[torch.Tensor], elsewhere: list[torch.Tensor]) -> tuple[str, str]:
    """The verdict on what is off in float32."""
    batches = [([x], [EAGER], [EXACT]) for x in elsewhere]
    found = judge([OFF], [EAGER], lambda: [EXACT], tuple, Again(lambda: wide, lambda: batches))
    return found.verdict, found.detail + found.facts.get(CORNER, "")


def test_a_corner_is_right_in_float64_and_on_most_other_inputs():
    verdict, detail = tried_again([EXACT * (1 + 1e-15)], [*RIGHT * 4, OFF, OFF])
    assert verdict == "within" and "eager's is" in detail  # how far off it was
    assert "in float64 it is right, and so on 4 of 6" in detail


def test_what_is_wrong_in_float64_or_elsewhere_is_no_corner():
    verdict, detail = tried_again([EXACT + 1e-3], RIGHT * 6)
    assert verdict == "WRONG" and "in float64, too" in detail
    verdict, detail = tried_again([EXACT], [*RIGHT * 3, *[OFF] * 3])  # of float32 alone
    assert verdict == "WRONG" and "in float32 on 3 of 6" in detail
    for other in ([EAGER], [EXACT[:9]], [EXACT, EXACT]):
        assert tried_again(other, RIGHT * 6) == ("WRONG", tried_again(other, [])[1])
    assert tried_again([EXACT], [])[0] == "WRONG"  # nothing shows that it is one
