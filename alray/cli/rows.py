"""Lines of a name and a value, the values beneath each other; and numbers of things in words."""

from __future__ import annotations

from collections.abc import Sequence


def rows_text(rows: Sequence[tuple[str, str]]) -> str:
    """One line a row."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


def counted(number: float, name: str) -> str:
    """A number with what it counts: `1 stage`, `2 stages`, `400 mini-batches`."""
    if number == 1:
        return f"1 {name}"
    return f"{_digits(number)} {name}{'es' if name.endswith('ch') and name != 'epoch' else 's'}"


def _digits(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:.4g}"
