"""Tables of pages that are written by hand, filled from published figures."""

from __future__ import annotations

import re
from collections.abc import Iterable


def with_rows(page: str, head: str, rows: Iterable[str]) -> str:
    """The page with these rows in its table of this head.

    Args:
        head: the words of the first line, up to the end of the line.
        rows: each a whole line.
    """
    table = re.compile(rf"(^{re.escape(head)}\n\|[-|]+\|\n)(?:\|.*\n)*", re.MULTILINE)
    written, count = table.subn(lambda found: found[1] + "".join(f"{row}\n" for row in rows), page)
    if count != 1:
        raise ValueError(f"{count} tables begin with {head}")
    return written
