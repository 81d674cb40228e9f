"""Drawings of a report as SVG: phases by rank, a counter over time, who waits for whom.

The library writes what it is given, unescaped: every text goes through `_text` or `_title`, the only places where one enters a drawing, and
everything else is a number or a class name of ours. Colours are classes, so that one style sheet serves light, dark and print.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any

import svg

from firsttoken.report.content import Curve, Lane, Turn
from firsttoken.report.live_text import ranks_text
from firsttoken.report.text import visible
from firsttoken.report.wait_graph import Arrow, Graph, Node

WIDTH = 960
_LEFT, _RIGHT = 112, 14
_LANE, _GAP = 22, 6
_AXIS = 26
_LETTER = 6.6
"""width of a character at the labels' size"""
_MOST_LANES = 40
_CURVE = 96
_BOX, _BOX_HEIGHT, _BETWEEN, _BELOW = 210, 50, 120, 22

Elements = list[svg.Element]


def timeline(lanes: Sequence[Lane], turns: Sequence[Turn], until: float) -> str:
    """Verdicts, then one row for each group of ranks. Phases that are not left reach to the edge, and are hatched."""
    rows = lanes[:_MOST_LANES]
    bottom = _AXIS + (len(rows) + 1) * (_LANE + _GAP)
    height = bottom + _AXIS
    parts: Elements = [*_hatching(), *_axis(until, bottom)]
    y = float(_AXIS)
    parts.append(_text("verdict", 0, y + 15, "label"))
    for turn, end in zip(turns, [*(turn.t for turn in turns[1:]), until], strict=False):
        said = f"{turn.verdict} from {turn.t:.1f} s: {turn.reason}"
        parts += _bar(turn.verdict, said, turn.t, end, y, until, f"v-{_word(turn.verdict)}")
    for lane in rows:
        y += _LANE + _GAP
        parts.append(_text(_cut(_lane(lane), _LEFT - 8), 0, y + 15, "label"))
        for stretch in lane.stretches:
            end_at = stretch.end if stretch.end is not None else until
            took = f"{end_at - stretch.begin:.1f} s" if stretch.end is not None else f"since {stretch.begin:.1f} s, not left"
            name = f"p-{_word(stretch.phase)}"
            parts += _bar(stretch.phase, f"{stretch.phase}: {took}", stretch.begin, end_at, y, until, name)
            if stretch.end is None:
                parts.append(_rect(stretch.begin, end_at, y, until, "open"))
    parts += _legend(dict.fromkeys(stretch.phase for lane in rows for stretch in lane.stretches), bottom)
    return _drawing(f"Phases by rank over {until:.1f} s", parts, WIDTH, height)


def curve(one: Curve, until: float) -> str:
    """An area over the same time axis as the phases."""
    top = max(value for _, value in one.points) or 1.0
    high = _nice(top)
    base = _CURVE - 18
    points = [(_x(t, until), base - value / high * (base - 10)) for t, value in one.points if t <= until] or [(float(_LEFT), float(base))]
    area = [(points[0][0], base), *points, (points[-1][0], base)]
    parts: Elements = [*_axis(until, base, labels_at=_CURVE - 4), svg.Polygon(points=_points(area), class_=["area"])]
    parts += [svg.Polyline(points=_points(points), class_=["line"]), _text(f"{high:g}", _LEFT - 8, 16, "scale")]
    parts += [_text("0", _LEFT - 8, base, "scale"), _text(one.unit, 0, 16, "label")]
    return _drawing(f"{one.name}, {one.unit}: at most {top:.3g}", parts, WIDTH, _CURVE)


def waits(found: Graph) -> str:
    """Nodes from left to right, who is waited for to the right; what nothing inside can move has a thick border."""
    columns = max(node.column for node in found.nodes) + 1
    rows = max(node.row for node in found.nodes) + 1
    loops = any(arrow.back for arrow in found.arrows)
    width = 4 + columns * _BOX + (columns - 1) * _BETWEEN + (90 if loops else 4)
    parts: Elements = [_arrow_head()]
    for arrow in found.arrows:
        parts += _arrow(arrow, found.nodes)
    for node in found.nodes:
        parts += _box(node)
    return _drawing("Who waits for whom", parts, width, rows * (_BOX_HEIGHT + _BELOW) + 8)


def _drawing(name: str, parts: Elements, width: float, height: float) -> str:
    label = escape(visible(name))
    box = svg.ViewBoxSpec(0, 0, width, height)
    told = {"role": "img", "aria-label": label}
    whole = svg.SVG(viewBox=box, width=width, height=height, elements=[_title(name), *parts], class_=["drawing"], extra=told)
    return whole.as_str()


def _text(text: str, x: float, y: float, name: str) -> svg.Text:
    return svg.Text(x=round(x, 1), y=round(y, 1), class_=name.split(), text=escape(visible(text)))


def _title(text: str) -> svg.Title:
    return svg.Title(text=escape(visible(text)))


def _word(text: str) -> str:
    """A class name: the vocabulary's own words are ones already."""
    return "".join(char for char in text if char.isascii() and (char.isalpha() or char == "_"))


def _cut(text: str, room: float) -> str:
    most = max(int(room / _LETTER), 1)
    return text if len(text) <= most else text[: most - 1] + "…"


def _lane(lane: Lane) -> str:
    return f"rank {lane.ranks[0]}" if len(lane.ranks) == 1 else f"ranks {ranks_text(lane.ranks)}"


def _x(t: float, until: float) -> float:
    return _LEFT + min(max(t, 0.0), until) / until * (WIDTH - _LEFT - _RIGHT)


def _bar(name: str, said: str, begin: float, end: float, y: float, until: float, kind: str) -> Iterator[svg.Element]:
    bar = _rect(begin, end, y, until, kind)
    bar.elements = [_title(said)]
    yield bar
    room = _x(end, until) - _x(begin, until) - 8
    if room >= _LETTER * len(name):
        yield _text(name, _x(begin, until) + 5, y + 15, "on")


def _rect(begin: float, end: float, y: float, until: float, kind: str) -> svg.Rect:
    left, right = _x(begin, until), _x(end, until)
    return svg.Rect(x=round(left, 1), y=y, width=round(max(right - left - 1, 1.0), 1), height=_LANE, rx=2, class_=["bar", kind])


def _legend(phases: Iterable[str], y: float) -> Iterator[svg.Element]:
    """Short phases have no room for their name."""
    x = 0.0
    for phase in phases:
        yield svg.Rect(x=round(x, 1), y=y + 8, width=10, height=10, class_=["bar", f"p-{_word(phase)}"])
        yield _text(phase, x + 14, y + 17, "tick left")
        x += 14 + 6.1 * len(phase) + 8


def _axis(until: float, bottom: float, labels_at: float = 14) -> Iterator[svg.Element]:
    step = _nice(until / 8)
    for number in range(int(until / step) + 1):
        x = round(_x(number * step, until), 1)
        yield svg.Line(x1=x, x2=x, y1=labels_at + 5 if labels_at < bottom else 4, y2=bottom, class_=["grid"])
        yield _text(f"{number * step:g} s", x, labels_at, "tick")


def _nice(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= value * 0.999)


def _points(pairs: Sequence[tuple[float, float]]) -> list[Any]:
    """The library's type of points is private to it: numbers, x and y in turn."""
    return [round(number, 1) for pair in pairs for number in pair]


def _hatching() -> Iterator[svg.Element]:
    lines: Elements = [svg.Line(x1=0, y1=0, x2=0, y2=6, class_=["hatch"])]
    pattern = svg.Pattern(id="open", width=6, height=6, patternUnits="userSpaceOnUse", patternTransform=[svg.Rotate(45)], elements=lines)
    yield svg.Defs(elements=[pattern])


def _arrow_head() -> svg.Element:
    tip: Elements = [svg.Path(d=[svg.M(0, 0), svg.L(8, 4), svg.L(0, 8), svg.Z()], class_=["tip"])]
    return svg.Defs(elements=[svg.Marker(id="tip", markerWidth=8, markerHeight=8, refX=7, refY=4, orient="auto", elements=tip)])


def _at(node: Node) -> tuple[float, float]:
    return 2 + node.column * (_BOX + _BETWEEN), 4 + node.row * (_BOX_HEIGHT + _BELOW)


def _box(node: Node) -> Iterator[svg.Element]:
    x, y = _at(node)
    full = f"{node.name}: {node.detail}" if node.detail else node.name
    kinds = ["box", "blocker"] if node.blocker else ["box"]
    yield svg.Rect(x=x, y=y, width=_BOX, height=_BOX_HEIGHT, rx=5, class_=kinds, elements=[_title(full)])
    yield _text(_cut(node.name, _BOX - 16), x + 8, y + 20, "name")
    yield _text(_cut(node.detail, _BOX - 16), x + 8, y + 38, "detail")


def _arrow(arrow: Arrow, nodes: Sequence[Node]) -> Iterator[svg.Element]:
    """To the right as a line; back, or within a column, as a bow at the right side."""
    (x1, y1), (x2, y2) = _at(nodes[arrow.begin]), _at(nodes[arrow.end])
    y1, y2 = y1 + _BOX_HEIGHT / 2, y2 + _BOX_HEIGHT / 2
    if not arrow.back:
        yield svg.Line(x1=x1 + _BOX, y1=y1, x2=x2 - 2, y2=y2, class_=["arrow"], marker_end="url(#tip)")
        yield _text(_cut(arrow.text, _BETWEEN - 12), x2 - _BETWEEN / 2, y2 - 6, "wait")
        return
    out = max(x1, x2) + _BOX
    down = 8 if y2 > y1 else -8
    bow = [svg.M(x1 + _BOX, y1 + down), svg.C(out + 60, y1 + down, out + 60, y2 - down, x2 + _BOX + 2, y2 - down)]
    yield svg.Path(d=bow, class_=["arrow"], marker_end="url(#tip)")
    yield _text(arrow.text, out + 46, (y1 + y2) / 2 + 4 + down, "bow")
