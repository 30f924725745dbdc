"""Published figures that a study shows next to its figures if its spec asks for them (`published`): times of pipelines,
and errors of networks that were cut.

The thesis times AL with a barrier in each mini-batch, the schedule `overlapped` here. On several GPUs its layers lie
round-robin: `partition: cyclic`.

The times were measured on other machines and with other networks. Only their ratios are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

from alray.config.study.section import PublishedName

NOTES: dict[PublishedName, str] = {
    "lin_2023": (
        "Thin lines are published curves (T.-H. Lin, Enabling simultaneous parameter updates in different layers for a "
        "neural network, using associated learning and pipeline, National Central University, 2023: AG News, "
        "Transformer, batch 256, seconds per epoch on GPUs, with the layers placed in turns over them), of which only "
        "the ratios can be compared."
    ),
    "wang_2021": (
        "Published curves of the same data set are separate lines: other networks, other training (Y. Wang et al., "
        "Revisiting Locally Supervised Learning, ICLR 2021, as others cite it)."
    ),
}
"""What a figure with curves of a source says of them."""


@dataclass(frozen=True)
class Published:
    """Seconds per epoch by the number of devices.

    Attributes:
        local_losses: the curve is of such a method, not of backpropagation.
    """

    source: PublishedName
    label: str
    weak: bool
    local_losses: bool
    seconds: dict[int, float]


CURVES = (
    Published(
        "lin_2023",
        "thesis: AL, overlapped, cyclic",
        weak=True,
        local_losses=True,
        seconds={1: 7.44, 2: 9.54, 3: 11.96, 4: 15.55, 5: 21.04, 6: 26.23},
    ),
    Published(
        "lin_2023",
        "thesis: naive BP, cyclic",
        weak=True,
        local_losses=False,
        seconds={1: 8.67, 2: 16.07, 3: 24.54, 4: 32.46, 5: 40.83, 6: 48.07},
    ),
    Published(
        "lin_2023",
        "thesis: AL, overlapped, cyclic",
        weak=False,
        local_losses=True,
        seconds={1: 66.2, 2: 65.5, 3: 55.6, 4: 51.1, 6: 60.9},
    ),
    Published(
        "lin_2023",
        "thesis: naive BP, cyclic",
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

    source: PublishedName
    label: str
    dataset: str
    errors: dict[int, float]


ERRORS = (
    PublishedErrors(
        "wang_2021",
        "Wang et al. 2021: ResNet-32, local cross-entropy",
        dataset="CIFAR10",
        errors={1: 0.0737, 2: 0.1030, 16: 0.2459},
    ),
)
