"""Numbers with their nouns, in every text for users."""

from __future__ import annotations


def counted(value: float, noun: str, plural: str | None = None) -> str:
    """A count with its noun in singular or plural: `1 stage`, `2 stages`, `400 mini-batches`, `0.25 epochs`.

    Args:
        plural: where the noun does not just get an "s".
    """
    if value == 1:
        return f"1 {noun}"
    several = plural or (f"{noun}es" if noun.endswith("batch") else f"{noun}s")
    return f"{value:,.0f} {several}" if value == int(value) else f"{value:.4g} {several}"
