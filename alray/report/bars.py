"""Stacked bars as inline SVG: one bar per row, each part a share of its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LEFT, _RIGHT = 1032, 72, 12  # pixels
_WAITING = frozenset({"send", "receive", "idle"})  # light fills, which want dark letters
_BAR, _PITCH, _TOP, _BOTTOM = 22, 32, 6, 24


@dataclass(frozen=True)
class Bar:
    """One row: its label and the amounts of its parts, in the order of the legend; none is negative."""

    label: str
    parts: tuple[float, ...]


def stacked_bars(bars: Sequence[Bar], *, parts: Sequence[str], classes: Sequence[str], title: str) -> str:
    """A `<figure>` of full-width bars. `parts` name the amounts, `classes` are their style sheet classes."""
    height = _TOP + _PITCH * len(bars) + _BOTTOM
    width = _WIDTH - _LEFT - _RIGHT
    body = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        at = _LEFT + share * width
        end = "end" if share == 1 else "mid"  # the last label would leave the picture
        body.append(f'<line class="grid" x1="{at:g}" x2="{at:g}" y1="{_TOP}" y2="{height - _BOTTOM}"/>')
        body.append(f'<text class="tick {end}" x="{at:g}" y="{height - 8}">{share:.0%}</text>')
    for row, bar in enumerate(bars):
        body.append(_bar(bar, parts, classes, top=_TOP + row * _PITCH, width=width))
    keys = "".join(
        f'<li><svg class="swatch" viewBox="0 0 10 10"><rect class="fill {kind}" width="10" height="10"/>'
        f"</svg>{escape(part)}</li>"
        for part, kind in zip(parts, classes, strict=True)
    )
    return (
        f"<figure><figcaption><b>{escape(title)}</b></figcaption>"
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}">'
        f'{"".join(body)}</svg><ul class="legend">{keys}</ul></figure>'
    )


def _bar(bar: Bar, parts: Sequence[str], classes: Sequence[str], *, top: float, width: float) -> str:
    total = sum(bar.parts)
    drawn = [f'<text class="label end" x="{_LEFT - 8}" y="{top + _BAR / 2 + 4:g}">{escape(bar.label)}</text>']
    at = float(_LEFT)
    for name, amount, kind in zip(parts, bar.parts, classes, strict=True):
        share = amount / total if total > 0 else 0.0
        if share > 0:
            size = share * width
            drawn.append(
                f'<rect class="fill {kind}" x="{at:.1f}" y="{top:g}" width="{size:.1f}" height="{_BAR}">'
                f"<title>{escape(bar.label)}: {escape(name)} {share:.1%}</title></rect>"
            )
            if size > 34:
                middle = at + size / 2
                baseline = top + _BAR / 2 + 4
                ink = "on-wait" if kind in _WAITING else "on-fill"
                drawn.append(f'<text class="{ink} mid" x="{middle:.1f}" y="{baseline:g}">{share:.0%}</text>')
            at += size
    return "".join(drawn)
