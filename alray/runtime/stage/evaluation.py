"""Evaluation on stage 0: which batches, and the metric of each route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from alray.core.run_folder.records import DepthScores, Scores
from alray.data.batches import Batch, EvaluationBatches
from alray.data.dataset import Dataset
from alray.data.division import having
from alray.models.task import Tally


class Evaluator:
    """Gives the batches of an evaluation and takes the scores that come back."""

    def __init__(
        self, data: Dataset, splits: tuple[str, ...], *, depths: Sequence[int], measured: bool = False
    ) -> None:
        """
        Args:
            splits: of "train", "validation", "test"; those the data does not have are left out.
            depths: of all routes, shallowest first.
            measured: whether what is taken is what the task's `measured` makes of scores, not these themselves.
        """
        self._data = data
        self._measured = measured
        self._splits = [split for split in splits if data.splits.get(split) is not None]
        self._batches = {split: EvaluationBatches(data, split) for split in self._splits}
        self._tallies: dict[str, list[Tally]] = {split: [data.task.tally() for _ in depths] for split in self._splits}
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
        """Scores of evaluation batch `batch` by every route, `[N, outputs]` each, shallowest first."""
        split, labels = self._expected[batch]
        in_units = self._data.in_units(labels)
        for tally, route in zip(self._tallies[split], scores, strict=True):
            found = route if self._measured else self._data.task.measured(self._data.in_units(route), labels)
            tally.take(found, in_units)

    def told(self, scores: Sequence[DepthScores]) -> list[str]:
        """Sentences about what the metric says nothing of, because of the labels of a split.

        Args:
            scores: what `scores` gave.
        """
        title, lines = self._data.task.metric.title, []
        for split, (tally, *_) in self._tallies.items():
            if not tally.samples:
                continue
            missing = [self._data.classes[number] for number in tally.undefined]
            have = having(self._data.task.section.label, missing, tally.lack) if missing else ""
            if getattr(scores[0], split) is None:
                lines.append(f"{title} is not defined for the {split} split{': ' * bool(have)}{have}")
            elif have:
                lines.append(f"{have} in the {split} split: {tally.instead} {title}")
        return lines

    def scores(self) -> list[DepthScores]:
        """The metric of every route, shallowest first; the last is the whole network."""
        measured = {split: tallies for split, tallies in self._tallies.items() if tallies[0].samples}
        if not measured:
            return []
        found = []
        for number, depth in enumerate(self._depths):
            tallies = {split: each[number] for split, each in measured.items()}
            further: dict[str, dict[str, float | None]] = {}
            for split, tally in tallies.items():
                for name, value in tally.further.items():
                    further.setdefault(name, {})[split] = value
            values = {split: tally.value() for split, tally in tallies.items()}
            named = {name: Scores(**each) for name, each in further.items()}
            found.append(DepthScores(depth=depth, further=named, **values))
        return found
