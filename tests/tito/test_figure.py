from __future__ import annotations

import io
import math
from xml.etree import ElementTree

import pytest

from tito.figure import HEIGHT, TOP, WIDTH, Figure, cells, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def drawn(figure: Figure, name: str) -> list[ElementTree.Element]:
    """The elements of a kind; that they are found at all says that the text is well formed."""
    return ElementTree.fromstring(figure._repr_svg_()).findall(SVG + name)


def points(line: ElementTree.Element) -> list[tuple[float, ...]]:
    return [tuple(map(float, p.split(","))) for p in line.attrib["points"].split()]


def test_larger_values_stand_higher_and_further_right() -> None:
    (line,) = drawn(line_chart([0, 1, 2], {"y": [1.0, 5.0, 3.0]}), "polyline")
    (x0, y0), (x1, y1), (x2, y2) = points(line)
    assert x0 < x1 < x2
    assert y1 < y2 < y0  # y counts downwards on a screen
    assert y0 - y1 == pytest.approx(2 * (y0 - y2), abs=0.2)


def test_a_logarithmic_axis_gives_each_factor_of_ten_the_same_height() -> None:
    (line,) = drawn(line_chart([0, 1, 2], {"y": [0.01, 1.0, 100.0]}, log=True), "polyline")
    (_, y0), (_, y1), (_, y2) = points(line)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)


@pytest.mark.parametrize(("log", "left"), [(False, 3), (True, 2)])
def test_what_cannot_be_drawn_is_left_out(log: bool, left: int) -> None:
    values = [1.0, math.nan, math.inf, -2.0, 3.0]
    (line,) = drawn(line_chart(range(5), {"y": values}, log=log), "polyline")
    assert len(points(line)) == left


def test_every_series_has_its_name_and_colour() -> None:
    figure = line_chart([0, 1], {"a < b": [0, 1], "c": [1, 1]}, title="t & u")
    first, second = drawn(figure, "polyline")
    assert first.attrib["stroke"] != second.attrib["stroke"]
    texts = {text.text: text.attrib["fill"] for text in drawn(figure, "text")}
    assert texts["a < b"] == first.attrib["stroke"] and "t & u" in texts


@pytest.mark.parametrize(
    ("x", "series", "message"),
    [
        ([0, 1], {"y": [1.0]}, "'y' has 1 values, x 2"),
        ([0, 1], {"y": [math.nan, math.inf]}, "nothing to draw"),
        ([1, 1], {"y": [1.0, 2.0]}, "a single x"),
        ([0, 1], {}, "nothing to draw"),
    ],
)
def test_what_makes_no_chart_is_refused(
    x: list[float], series: dict[str, list[float]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        line_chart(x, series)


def test_the_picture_has_the_colours_of_the_drawing_where_it_has_them() -> None:
    image = pytest.importorskip("PIL.Image")
    figure = line_chart([0, 1], {"a": [1.0, 1.0], "b": [2.0, 3.0]}, title="lines")
    png = figure._repr_png_()
    assert png is not None and len(png) < 20_000
    picture = image.open(io.BytesIO(png)).convert("RGB")
    assert picture.size == (2 * WIDTH, 2 * HEIGHT)
    for line in drawn(figure, "polyline"):
        (x0, y0), (x1, y1) = points(line)
        color = "#{:02x}{:02x}{:02x}".format(*picture.getpixel((int(x0 + x1), int(y0 + y1))))
        assert color == line.attrib["stroke"]
    boxes = image.open(io.BytesIO(cells([[1, 2]])._repr_png_() or b"")).convert("RGB")
    assert boxes.getpixel((20, 2 * TOP + 10)) != (255, 255, 255)


def test_what_has_no_picture_is_refused() -> None:
    pytest.importorskip("PIL")
    with pytest.raises(ValueError, match="the element <circle>"):
        Figure(cells([[1]]).svg.replace("</svg>", '<circle r="3"/></svg>'))._repr_png_()


def test_cells_stand_in_rows() -> None:
    boxes = drawn(cells([[1, 2, 3], [4]]), "rect")
    places = [(box.attrib["x"], box.attrib["y"]) for box in boxes]
    assert len(set(places)) == 4
    assert places[0][0] == places[3][0] and places[0][1] == places[2][1] != places[3][1]
    assert boxes[0].attrib["fill"] != boxes[3].attrib["fill"]


def test_cells_take_their_colours_from_numbers() -> None:
    a, b, c = (box.attrib["fill"] for box in drawn(cells([[1, 2, 3]], colors=[[0, 1, 0]]), "rect"))
    assert a == c != b
