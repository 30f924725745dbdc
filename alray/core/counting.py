"""Numbers in texts for users: counts with their nouns, and settings."""

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


def setting_text(value: float, digits: int = 3) -> str:
    """A setting with so many digits, and with more where 1 - value would be wrong by more than a twentieth, as of a
    momentum: `0.00123`, `0.9`, `0.9995`.
    """
    text = f"{value:.{digits}g}"
    return setting_text(value, digits + 1) if abs(float(text) - value) > abs(1.0 - value) / 20 else text
