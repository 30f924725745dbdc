"""Every spec of the ledger, on the simulated device: the weights are those of the processor, bit for bit.

A real GPU has kernels of its own, and so other bits.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ..engine.ledger import known, processor, specs, weights_of
from .conftest import ON_GPU, SIMULATED

pytestmark = [pytest.mark.skipif(not SIMULATED, reason="its bits are those of a processor")]
SPECS = specs()


@pytest.mark.parametrize("name", SPECS)
def test_the_weights_are_those_of_the_processor(tmp_path: Path, name: str) -> None:
    expected = known().get(processor(), {}).get(name) or weights_of(SPECS[name], tmp_path / "cpu")
    assert weights_of(SPECS[name], tmp_path, *ON_GPU) == expected
