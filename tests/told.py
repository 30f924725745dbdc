"""Errors of the command line in one line each, for tests of what they say and not of how they look."""

from __future__ import annotations

import re


def in_lines(errors: str) -> str:
    """What a command wrote on standard error, with each problem as `file:line: key: what is wrong; what to do`."""
    without_shown = re.sub(r"(?m)^ *\d* \|.*\n", "", errors)
    whole = re.sub(r"\n *= help: ", "; ", without_shown).replace("error: ", "")
    return re.sub(r"(?m)^(.+?:\d+):\d+: ", r"\1: ", whole)
