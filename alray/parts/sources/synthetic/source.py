"""Artificial samples that a network can learn, for tests, benchmarks and specs without data."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from alray.config.sections.task import Label, TaskSection
from alray.core.errors import DataError
from alray.core.randomness.generators import generator
from alray.data.picture import Picture, resize
from alray.data.source import Normalisation, Source, SplitName, TensorSet
from alray.parts.sources.synthetic.keys import Synthetic

# Not the seed of a run, so that every run trains and tests on the same samples.
_SEED = 20260
_BLOCK = 256  # samples drawn from one generator
_LARGEST_BYTES = 8 * 2**30


class SyntheticSource(Source):
    """A sample is the pattern of its class plus noise, in 0..1. The patterns of pictures are smooth.

    Sample i has class i % classes and does not depend on the number of samples. The test set is drawn separately. It
    has a fifth as many samples as the training set, and at least one of each class.

    Of other tasks, each label or target has a pattern: a sample is the sum of those of its labels, or the sum weighted
    by its targets, which have a mean of 0 and a deviation of 1.
    """

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        classes: int,
        samples: int,
        size: tuple[int, int] | None = None,
        label: Label = "class",
    ) -> None:
        """
        Args:
            shape: of one sample.
            classes: their number, or that of labels or targets.
            size: replaces the height and width of `shape`, in pixels.
        """
        if size is not None:
            if len(shape) != 3:
                raise DataError(
                    f"samples of shape {list(shape)} have no height and width",
                    key="data.image_size",
                    hint="leave it out, or give a shape with channels, height and width",
                )
            shape = (shape[0], *size)
        # The test set has a sample of each class, and each class has a pattern.
        most, counted = max((samples, "samples"), (classes, "classes"))
        size_bytes = most * math.prod(shape) * 4
        if size_bytes > _LARGEST_BYTES:
            raise DataError(
                f"{most} {counted} of shape {list(shape)} take {size_bytes / 2**30:.1f} GiB, "
                f"but synthetic samples are kept in memory, at most {_LARGEST_BYTES / 2**30:.0f} GiB",
                key=f"data.{counted}",
                hint=f"use at most {_LARGEST_BYTES // (math.prod(shape) * 4)} {counted}",
            )
        self._shape = tuple(shape)
        self.picture = Picture(self._shape, self._shape[1:])
        self._num_classes = classes
        self._label = label
        kind = {"flags": "label", "numbers": "target"}.get(label, "class")
        self.classes = tuple(f"{kind}_{number}" for number in range(classes))
        self._num_train = samples
        self.normalisation = Normalisation(mean=(0.5,) * shape[0], std=(0.25,) * shape[0])

    def open(self, split: SplitName) -> TensorSet:
        num_samples = self._num_train if split == "train" else max(self._num_train // 5, self._num_classes)
        labels = torch.arange(num_samples) % self._num_classes
        samples = torch.empty(num_samples, *self._shape)
        for number, block in enumerate(samples.split(_BLOCK)):
            noise = torch.randn(_BLOCK, *self._shape, generator=generator(_SEED, split, number))
            block.copy_(noise[: len(block)])
        patterns = self._patterns()
        if self._label != "class":
            return self._with_vectors(samples, patterns, split)
        for block, block_labels in zip(samples.split(_BLOCK), labels.split(_BLOCK), strict=True):
            block.mul_(0.15).add_(patterns[block_labels], alpha=0.15).add_(0.5).clamp_(0.0, 1.0)
        return TensorSet(samples, labels)

    def _with_vectors(self, samples: Tensor, patterns: Tensor, split: SplitName) -> TensorSet:
        """The set of another task.

        Args:
            samples: the noise, which becomes the samples.
        """
        drawn = generator(_SEED, split, "labels")
        labels = torch.randn(len(samples), self._num_classes, generator=drawn)
        if self._label == "flags":
            labels = (labels > 0).to(torch.float32)
        signal = (labels @ patterns.flatten(1)).view(samples.shape) / math.sqrt(self._num_classes)
        return TensorSet(samples.mul_(0.15).add_(signal, alpha=0.15).add_(0.5).clamp_(0.0, 1.0), labels)

    def _patterns(self) -> Tensor:
        """Return one pattern for each class, [classes, *shape], with mean 0 and standard deviation 1 approximately."""
        drawn = generator(_SEED, "patterns")
        if len(self._shape) != 3:
            return torch.randn(self._num_classes, *self._shape, generator=drawn)
        coarse = torch.randn(self._num_classes, self._shape[0], 4, 4, generator=drawn)
        return resize(coarse, (self._shape[1], self._shape[2]))


def opened(section: Synthetic, task: TaskSection) -> Source:
    """The source of a spec's section. `implementation` in keys.py names this function, and
    `alray.data.opening.make_source` calls it."""
    return SyntheticSource(
        shape=tuple(section.shape),
        classes=section.classes,
        samples=section.samples,
        size=section.size,
        label=task.label,
    )
