"""Windows of tokens: a stream of documents cut into samples of one length, each with the next token as its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from alray.config.sections.data import TokenSection
from alray.config.sections.task import TaskSection
from alray.core.errors import DataError
from alray.core.randomness.generators import generator
from alray.data.dataset import Dataset
from alray.data.division import divide, require_mini_batch
from alray.data.hashes import hash_of_set
from alray.data.inputs import TokenInputs
from alray.data.source import SplitName, TextSet, TextSource
from alray.data.split import Augment, EpochPosition, Split
from alray.data.tokens import make_tokens
from alray.models.shape import Shape
from alray.models.task import make_task


def window_data(
    source: TextSource,
    sets: Mapping[SplitName, TextSet | None],
    section: TokenSection,
    seed: int,
    task_section: TaskSection,
) -> Dataset:
    """The data of a text to continue. Raises DataError, as `open_data`.

    Args:
        sets: the documents of the source; its training set is there.
    """
    documents, test = sets["train"], sets.get("test")
    assert documents is not None
    parts = divide(len(documents), section, seed)
    training, others = (documents.at(part.tolist()) for part in parts)
    tokens = make_tokens(
        section.tokens,
        training.texts,
        tokenizer=section.tokenizer,
        end_token=section.end_token,
        vocabulary_size=section.vocabulary_size,
    )

    def split(name: str, of: TextSet | None, seed: int | None = None) -> WindowSplit | None:
        if of is None or not of.texts:
            return None
        stream = tokens.stream(of.texts, f"the tokens of the {name} split")
        return WindowSplit(stream, section.context, name=name, names=tokens.names, seed=seed)

    train = split("training", training, seed)
    assert train is not None, "a division leaves a document for training"
    require_mini_batch(len(train), section, f"{len(train)} windows of {section.context} tokens")
    task = make_task(task_section, len(tokens.names), (section.context,))
    return Dataset(
        section=section,
        task=task,
        train=train,
        validation=split("validation", others),
        test=split("test", test),
        inputs=TokenInputs(tokens, section.context),
        num_samples=len(train),
        chance=task.chance(train.stream),
        contents=hash_of_set(documents),
        notes=source.notes,
    )


class WindowSplit(Split):
    """Window i of a stream t is t[i T + o : (i + 1) T + o], and its labels are the tokens one later.

    T is the context. In training the offset o, of 0 to T - 1, is drawn from the seed and the number of the epoch. So a
    mini-batch depends on (seed, epoch, position) alone. In evaluations o is 0.
    """

    def __init__(self, stream: Tensor, context: int, *, name: str, names: tuple[str, ...], seed: int | None) -> None:
        """Raises DataError if the stream has no window.

        Args:
            stream: [tokens] of any integer type.
            name: of the split, for messages.
            names: of the tokens.
            seed: of the run, for the training split; None: the offset is always 0.
        """
        super().__init__(Shape((context,), torch.int64, tokens=len(names)), names)
        self.stream = stream
        self._seed = seed
        # A label is one token later, and the largest offset takes away almost a window.
        self._windows = (len(stream) - (1 if seed is None else context)) // context
        if self._windows < 1:
            raise DataError(
                f"the {name} split has {len(stream)} tokens, too few for a window of {context}",
                key="data.context",
                hint="use a smaller context, or more text",
            )

    def __len__(self) -> int:
        return self._windows

    def take(
        self, positions: Sequence[int] | Tensor, augment: Augment | None = None, at: EpochPosition | None = None
    ) -> tuple[Tensor, Tensor]:
        (context,) = self.shape
        starts = torch.as_tensor(positions, dtype=torch.int64) * context + self._offset(at)
        tokens = self.stream[starts.unsqueeze(1) + torch.arange(context + 1)].to(torch.int64)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def _offset(self, at: EpochPosition | None) -> int:
        if at is None or self._seed is None:
            return 0
        return int(torch.randint(self.shape[0], (), generator=generator(self._seed, "window", at[0])))
