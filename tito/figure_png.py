"""The figures of `tito.figure` as PNG: a notebook that is not trusted shows no SVG."""

from __future__ import annotations

import io
import re
from typing import Any
from xml.etree import ElementTree

SCALE = 2  # pixels for a unit of the drawing: screens are dense
INK, PAPER = "#24292f", "#ffffff"
ANCHORS = {
    "start": "ls",
    "middle": "ms",
    "end": "rs",
}  # of text on its base line, in Pillow's words


def png(svg: str) -> bytes:
    """A picture of rectangles, polylines, horizontal lines and text, as `tito.figure` draws them.

    Raises:
        ValueError: there is another element in it.
    """
    from PIL import Image, ImageDraw, ImageFont

    root = ElementTree.fromstring(svg)
    width, height = (float(side) * SCALE for side in root.attrib["viewBox"].split()[2:])
    image = Image.new("RGB", (round(width), round(height)), PAPER)
    canvas = ImageDraw.Draw(image, "RGBA")
    font = ImageFont.load_default(float(root.attrib["font-size"]) * SCALE)
    for element in root:
        _draw(canvas, font, element)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _draw(canvas: Any, font: Any, element: ElementTree.Element) -> None:
    name, said = element.tag.rpartition("}")[2], element.attrib
    if name == "rect":
        x, y, width, height = (SCALE * float(said[k]) for k in ("x", "y", "width", "height"))
        fill = said["fill"] + f"{round(255 * float(said.get('fill-opacity', '1'))):02x}"
        canvas.rectangle((x, y, x + width, y + height), fill, said.get("stroke"), SCALE)
    elif name == "polyline":
        points = [SCALE * float(value) for value in re.split("[ ,]", said["points"])]
        pen = round(SCALE * float(said["stroke-width"]))
        canvas.line(points, said["stroke"], pen, joint="curve")
    elif name == "path" and (line := re.fullmatch(r"M(\S+) (\S+)H(\S+)", said["d"])):
        left, y, right = (SCALE * float(value) for value in line.groups())
        canvas.line((left, y, right, y), said["stroke"], SCALE)
    elif name == "text":
        at = SCALE * float(said["x"]), SCALE * float(said["y"])
        color = INK if said["fill"] == "currentColor" else said["fill"]
        canvas.text(at, element.text or "", color, font, ANCHORS[said["text-anchor"]])
    else:
        raise ValueError(f"a figure has the element <{name}> {said}, which has no PNG")
