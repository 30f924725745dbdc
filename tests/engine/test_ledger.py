"""Each method, family of networks and kind of schedule ends in the weights that the ledger has for this processor."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from .ledger import known, processor, specs, weights_of

SPECS = specs()
AGAIN = {"2bw", "bp_1f1b", "bp_pictures", "solo_tokens"}
"""Specs whose mathematics changed while some kinds were not at hand: run `python -m tests.engine.ledger` there."""


@pytest.mark.parametrize("name", SPECS)
def test_the_weights_are_those_of_the_ledger(tmp_path: Path, name: str) -> None:
    expected = known().get(processor(), {}).get(name)
    found = weights_of(SPECS[name], tmp_path)
    if expected is None:
        warnings.warn(f"the ledger has no `{name}` for {processor()}: it ended in {found}", stacklevel=1)
    else:
        assert found == expected


def test_the_ledger_is_whole() -> None:
    """A kind of processor has every spec, but for those of `AGAIN`, and no two specs end in the same weights."""
    for hashes in known().values():
        assert set(SPECS) - AGAIN <= set(hashes) <= set(SPECS)
        assert len(set(hashes.values())) == len(hashes)
