"""Windows of tokens: a stream of documents cut into samples of one length, each with the next token as its labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alray.core.errors import DataError
from alray.data.source import TextSet, generator
from alray.data.split import Augment, EpochPosition, Split
from alray.data.tokens import Tokens


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
        super().__init__((context,), torch.int64, names)
        self._stream = stream
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
        tokens = self._stream[starts.unsqueeze(1) + torch.arange(context + 1)].to(torch.int64)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def _offset(self, at: EpochPosition | None) -> int:
        if at is None or self._seed is None:
            return 0
        return int(torch.randint(self.shape[0], (), generator=generator(self._seed, "window", at[0])))


def window_splits(
    train: TextSet,
    test: TextSet,
    tokens: Tokens,
    *,
    train_part: Tensor,
    validation_part: Tensor,
    context: int,
    seed: int,
) -> tuple[WindowSplit, WindowSplit | None, WindowSplit | None]:
    """Return the training, validation and test split.

    Raises DataError.

    Args:
        train_part, validation_part: indices into the documents of `train`, [n] int64.
    """

    def split(name: str, texts: Sequence[str], seed: int | None = None) -> WindowSplit | None:
        if not texts:
            return None
        return WindowSplit(
            tokens.stream(texts, f"the tokens of the {name} split"), context, name=name, names=tokens.names, seed=seed
        )

    training = split("training", [train.texts[index] for index in train_part.tolist()], seed)
    validation = split("validation", [train.texts[index] for index in validation_part.tolist()])
    assert training is not None, "a division leaves a document for training"
    return training, validation, split("test", test.texts)
