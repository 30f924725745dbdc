"""What a replica kept, and when it goes on."""

from __future__ import annotations

import pytest
import torch

from alray.config.sections.replicas import OF_OUTER_OPTIMIZER
from alray.runtime.stage.replica_state import _fits
from alray.runtime.stage.replication import Alone

TOP_K = {"error": torch.zeros(6)}
POWER_SGD = {"error": torch.zeros(6), "iteration": torch.tensor(3), "q": torch.zeros(2)}
OUTER = {"start.0": torch.zeros(6)}


class Holding(Alone):
    def __init__(self, kept, held):
        super().__init__()
        self.kept, self.held = kept, held

    def state_dict(self, index):
        return self.held


@pytest.mark.parametrize(
    ("state", "kept", "held", "goes_on"),
    [
        ({"compression": TOP_K, "kept": ("top_k", "0.1")}, ("top_k", "0.2"), TOP_K, True),
        (
            {"compression": POWER_SGD, "kept": ("powersgd", "1")},
            ("powersgd", "2"),
            POWER_SGD | {"q": torch.zeros(4)},
            False,
        ),
        ({"compression": TOP_K, "kept": ("top_k", "0.1")}, ("python:own.Own", ""), TOP_K, False),
        ({"compression": {}, "kept": ("python:own.Own", "")}, ("python:own.Own", ""), TOP_K, True),  # loading it raises
        ({"compression": POWER_SGD, "kept": ("powersgd", "1")}, (OF_OUTER_OPTIMIZER, ""), OUTER, False),
        (
            {"compression": OUTER | {"momentum.0": torch.zeros(6)}, "kept": (OF_OUTER_OPTIMIZER, "0.5")},
            (OF_OUTER_OPTIMIZER, ""),
            OUTER,
            True,
        ),
    ],
)
def test_a_state_goes_on_where_it_is_of_the_kind_and_fits(state, kept, held, goes_on):
    assert _fits(0, state, Holding(kept, held)) == goes_on
