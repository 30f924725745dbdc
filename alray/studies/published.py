"""Published figures that a study shows next to its own: times of pipelines, and errors of networks that were cut.

The thesis times AL with a barrier in each mini-batch, the schedule `overlapped` here. On several GPUs its layers lie
round-robin: `partition: cyclic`.

The times were measured on other machines and with other networks. Only their ratios are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

THESIS = (
    "T.-H. Lin, Enabling simultaneous parameter updates in different layers for a neural network, using associated "
    "learning and pipeline, National Central University, 2023: AG News, Transformer, batch 256, seconds per epoch"
)


@dataclass(frozen=True)
class Published:
    """Seconds per epoch by the number of devices.

    Attributes:
        local_losses: the curve is of such a method, not of backpropagation.
    """

    label: str
    source: str
    weak: bool
    local_losses: bool
    seconds: dict[int, float]


CURVES = (
    Published(
        "thesis: AL, overlapped, cyclic",
        THESIS,
        weak=True,
        local_losses=True,
        seconds={1: 7.44, 2: 9.54, 3: 11.96, 4: 15.55, 5: 21.04, 6: 26.23},
    ),
    Published(
        "thesis: naive BP, cyclic",
        THESIS,
        weak=True,
        local_losses=False,
        seconds={1: 8.67, 2: 16.07, 3: 24.54, 4: 32.46, 5: 40.83, 6: 48.07},
    ),
    Published(
        "thesis: AL, overlapped, cyclic",
        THESIS,
        weak=False,
        local_losses=True,
        seconds={1: 66.2, 2: 65.5, 3: 55.6, 4: 51.1, 6: 60.9},
    ),
    Published(
        "thesis: naive BP, cyclic",
        THESIS,
        weak=False,
        local_losses=False,
        seconds={1: 78.5, 2: 87.1, 3: 91.2, 4: 89.1, 6: 94.2},
    ),
)
"""12 layers on 1 to 6 GPUs (strong), and n layers on n GPUs (weak)."""


@dataclass(frozen=True)
class PublishedErrors:
    """Test errors, in 0..1, by the number of components that a network is cut into.

    Attributes:
        dataset: as in `data.dataset`.
    """

    label: str
    dataset: str
    errors: dict[int, float]


ERRORS = (
    PublishedErrors(
        "Wang et al. 2021: ResNet-32, local cross-entropy",
        dataset="CIFAR10",
        errors={1: 0.0737, 2: 0.1030, 16: 0.2459},
    ),
)
