"""Mini-batches of a run, each a function of (seed, epoch, position) alone, augmentation included.

So a run that starts at any step, with any number of loader workers, gets the same bits.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from alray.data.dataset import Data
from alray.data.source import generator
from alray.data.split import Augment
from alray.errors import DataError
from alray.plan.shares import rows_of, shares_of_part


@dataclass(frozen=True, slots=True)
class Batch:
    """One mini-batch.

    step: counted from 0 (over the whole run in training, over the split in evaluation);
    samples: [N, ...] float32, or [N, T] int64 for text, in default strides; labels: [N] int64;
    mask: [N, T] bool, True where text has a word, None for everything but text.
    """

    step: int
    samples: Tensor
    labels: Tensor
    mask: Tensor | None = None

    def inputs(self, device: torch.device, dtype: torch.dtype) -> dict[str, Tensor]:
        """`s`, and `mask` where there is one, on a device: what the first component takes.

        Floating-point samples get the run's type; integers (the words of a text) stay integers.
        """
        floating = self.samples.is_floating_point()
        inputs = {"s": self.samples.to(device, dtype) if floating else self.samples.to(device)}
        if self.mask is not None:
            inputs["mask"] = self.mask.to(device)
        return inputs


class TrainBatches:
    """The mini-batches start_step, ..., end_step - 1 of a run, in order, across epochs.

    torch's global random numbers are left alone, and workers ignore SIGINT: Ctrl-C is the run's to handle.
    An error in the data raises DataError from `next`, with workers as without. `close`, or a `with` block,
    ends the workers; they also end with the last batch.
    """

    def __init__(
        self,
        data: Data,
        *,
        seed: int,
        start_step: int,
        end_step: int,
        workers: int,
        shares: Sequence[int] = (),
        replica: int = 0,
    ) -> None:
        """workers: processes that prepare batches ahead; 0 prepares each when it is asked for.

        shares: samples of a mini-batch that each replica takes, of which those of `replica` are given; none for all.
        """
        loader = DataLoader(
            _Steps(data, seed, tuple(shares) or (data.batch_size,), replica),
            batch_size=None,  # an item of `_Steps` is a whole mini-batch
            sampler=range(start_step, end_step),
            collate_fn=_as_it_is,
            num_workers=workers,
            # A fork would copy a process that holds threads of torch and Ray; spawn starts clean, once a run.
            multiprocessing_context="spawn" if workers else None,
            # Same thread count as here: the bits of a large reduction depend on it.
            worker_init_fn=partial(_begin_worker, torch.get_num_threads()) if workers else None,
            generator=torch.Generator(),  # else the loader draws from the global one
        )
        self._batches: Iterator[Batch | DataError] | None
        self._batches = _start_workers(loader) if workers else iter(loader)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        if self._batches is None:
            raise StopIteration
        item = next(self._batches)
        if isinstance(item, DataError):
            self.close()
            raise item
        return item

    def close(self) -> None:
        """End the workers and wait for them. No batch comes after it; a second call does nothing."""
        self._batches = None  # the loader's iterator ends its workers when it goes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class EvaluationBatches:
    """The mini-batches of a split in order, without augmentation, the last partial one kept."""

    def __init__(self, data: Data, split: str) -> None:
        """split: "train", "validation" or "test". Raises DataError where the data has no such split."""
        chosen = data.splits[split]
        if chosen is None:
            mend = "set data.validation_fraction" if split == "validation" else "give the source a test set"
            raise DataError(f"there is no {split} split", key="data", mend=mend)
        self._split = chosen
        self._batch_size = data.batch_size

    def __len__(self) -> int:
        return -(-len(self._split) // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for step in range(len(self)):
            first = step * self._batch_size
            positions = range(first, min(first + self._batch_size, len(self._split)))
            samples, labels = self._split.take(positions)
            yield Batch(step, samples, labels, self._split.mask(samples))


class _Steps(Dataset[Any]):
    """Item k is mini-batch k of the run, or the DataError met on the way to it.

    An error is handed over as a value: the loader would make text with a traceback of one raised in a worker.
    """

    def __init__(self, data: Data, seed: int, shares: tuple[int, ...], replica: int) -> None:
        self._shares, self._replica = shares, replica
        self._split = data.train
        self._batch_size = data.batch_size
        self._steps_per_epoch = data.steps_per_epoch
        self._augment = data.augment
        self._seed = seed
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.int64)

    def __getitem__(self, step: int) -> Batch | DataError:
        epoch, position = divmod(step, self._steps_per_epoch)
        whole = self._epoch_order(epoch)[position * self._batch_size : (position + 1) * self._batch_size]
        own = rows_of(shares_of_part(self._shares, len(whole)), self._replica)
        first = position * self._batch_size + own.start
        positions = whole[own]
        try:
            samples, labels = self._split.take(positions, self._augmentation(epoch, first))
        except DataError as error:
            return error
        return Batch(step, samples, labels, self._split.mask(samples))

    def _augmentation(self, epoch: int, first: int) -> Augment | None:
        """Augmentation of the mini-batch whose first sample stands at place `first` of the epoch."""
        if self._augment == "none":
            return None
        from alray.data.augment import strong  # imports torchvision, which takes a second

        return lambda image, place: strong(image, generator(self._seed, "augment", epoch, first + place))

    def _epoch_order(self, epoch: int) -> Tensor:
        if epoch != self._epoch:
            self._order = torch.randperm(len(self._split), generator=generator(self._seed, "order", epoch))
            self._epoch = epoch
        return self._order


def _start_workers(loader: DataLoader[Any]) -> Iterator[Batch | DataError]:
    # Workers inherit the mask, so that Ctrl-C cannot end one that has not yet come to `_begin_worker`.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return iter(loader)
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # what pickle raises
        raise DataError(
            f"the source's samples cannot be sent to loader workers: {error}",
            key="data.workers",
            mend="set data.workers=0, or let the source return sets that can be pickled",
        ) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _as_it_is(item: Any) -> Any:
    return item


def _begin_worker(num_threads: int, worker: int) -> None:
    torch.set_num_threads(num_threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
