"""Evaluation on stage 0: which batches, and how many answers of each route are right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from alray.data.batches import Batch, EvaluationBatches
from alray.data.dataset import Dataset
from alray.run_folder.records import DepthAccuracy


@dataclass
class Tally:
    """Number of samples of one split, and of right answers by route, shallowest first."""

    samples: int = 0
    right: list[int] = field(default_factory=list)


class Evaluator:
    """Gives the batches of an evaluation and counts the scores that come back."""

    def __init__(self, data: Dataset, splits: tuple[str, ...], *, depths: Sequence[int]) -> None:
        """splits: of "train", "validation", "test"; those the data does not have are left out. depths: of all routes,
        shallowest first."""
        self._splits = [split for split in splits if data.splits.get(split) is not None]
        self._batches = {split: EvaluationBatches(data, split) for split in self._splits}
        self._tallies = {split: Tally() for split in self._splits}
        self._expected: list[tuple[str, torch.Tensor]] = []
        self._depths = tuple(depths)

    def __len__(self) -> int:
        """Evaluation batches over all splits."""
        return sum(len(batches) for batches in self._batches.values())

    def __iter__(self) -> Iterator[Batch]:
        for split in self._splits:
            for batch in self._batches[split]:
                self._expected.append((split, batch.labels))
                yield batch

    def take(self, batch: int, scores: list[torch.Tensor]) -> None:
        """Class scores of evaluation batch `batch` by every route, `[N, classes]` each, shallowest first."""
        split, labels = self._expected[batch]
        tally = self._tallies[split]
        tally.samples += len(labels)
        tally.right = tally.right or [0] * len(scores)
        for number, route in enumerate(scores):
            tally.right[number] += int((route.argmax(1).cpu() == labels).sum())

    def accuracies(self) -> list[DepthAccuracy]:
        """Accuracy of every route, shallowest first; the last is the whole network."""
        tallies = {split: tally for split, tally in self._tallies.items() if tally.samples}
        if not tallies:
            return []
        return [
            DepthAccuracy(
                depth=depth, **{split: tally.right[number] / tally.samples for split, tally in tallies.items()}
            )
            for number, depth in enumerate(self._depths)
        ]
