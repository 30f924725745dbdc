"""`data: docstrings`."""

from __future__ import annotations

from typing import Literal

from alray.config.sections.data import TextSection


class Docstrings(TextSection):
    """Docstrings of the installed standard library, NumPy, SciPy and scikit-learn; the class is the library.

    There are about 13,000 documents, without a download. They are made at first use and kept in a cache. A fixed 15 %
    are the test set.
    """

    implementation = "source:opened"

    source: Literal["docstrings"]
    """`docstrings`."""
