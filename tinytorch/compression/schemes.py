"""What `quantize_` can do with a linear layer, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinytorch.shapes_quantized import BLOCK


@dataclass(frozen=True)
class Scheme:
    """A way to store a layer's weight and to round its input.

    Attributes:
        name: as in `SCHEMES`.
        bits: of a weight's code: 8 or 4, symmetric, or 16: the weight as bfloat16.
        group_size: neighbouring weights that share a scale; 0 for all of an output's.
        activation: "float" multiplies with the input as it is; "dynamic" rounds each row of it to
            7 bits by its own range when it comes; "static" to 8 bits by a range that was
            calibrated. See `decompositions_quantized.rounded_rows` and `rounded_to`.
        calibration: how the weights' range is chosen: "range", "percentile" or "error"; bfloat16
            has none.
    """

    name: str
    bits: int
    group_size: int
    activation: str
    calibration: str = "range"


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("int8", 8, 0, "float"),
        Scheme("int8_dynamic", 8, 0, "dynamic"),
        Scheme("int8_static", 8, 0, "static"),
        Scheme("int4", 4, BLOCK, "float", "error"),
        Scheme("bfloat16", 16, 0, "float"),
    )
}


def find_scheme(scheme: str | Scheme, group_size: int | None) -> Scheme:
    """The scheme of a name, with another size of groups if one is given.

    Raises:
        ValueError: there is no such scheme, or the group size cannot be stored; bfloat16 has no
            groups.
    """
    if isinstance(scheme, str):
        if scheme not in SCHEMES:
            raise ValueError(f"there is no scheme {scheme!r}; there are {', '.join(SCHEMES)}")
        scheme = SCHEMES[scheme]
    size = scheme.group_size if group_size is None else group_size
    if scheme.bits == 16 and size:
        raise ValueError(f"group_size {size}: {scheme.name} has no scales, and so no groups")
    if size < 0 or (scheme.bits == 4 and size % BLOCK):
        raise ValueError(
            f"group_size {size} must be 0 (a whole row), or positive and, with {scheme.bits} bits, "
            f"a multiple of {BLOCK if scheme.bits == 4 else 1}"
        )
    return replace(scheme, group_size=size)
