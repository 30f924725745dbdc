"""The LSTM block: a recurrent layer that does not read padding."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from alray.core.errors import SpecError
from alray.models.inputs import require_sequence
from alray.models.shape import Shape
from alray.parts.blocks.lstm.unpacked import run_unpacked

LstmState = tuple[torch.Tensor, torch.Tensor]
"""Hidden and cell state h and c, each [N, directions * layers, hidden]."""


def build(
    input: Shape, *, hidden: int, bidirectional: bool = True, layers: int = 1, hand_on_state: bool = False
) -> nn.Module:
    """`[N, T, D] -> [N, T, hidden]`, twice as wide when bidirectional."""
    width = require_sequence("lstm", input)
    kind = LstmWithState if hand_on_state else PlainLstm
    return kind(width, hidden=hidden, bidirectional=bidirectional, layers=layers)


class _Recurrence(nn.Module):
    """`nn.LSTM` over sequences of different lengths."""

    def __init__(self, width: int, *, hidden: int, bidirectional: bool, layers: int) -> None:
        super().__init__()
        self.recurrence = nn.LSTM(width, hidden, num_layers=layers, bidirectional=bidirectional, batch_first=True)
        # Thesis: the readout of a bidirectional LSTM is the sum of its final states.
        self.alray_pooling = "final_states" if bidirectional else "last_state"

    def run(
        self, s: torch.Tensor, mask: torch.Tensor | None, state: LstmState | None
    ) -> tuple[torch.Tensor, LstmState]:
        """Outputs, 0 at padded positions, and the final state of each direction and layer.

        Each row runs over its words only: the forward direction ends at its last word, and the backward direction
        starts there. torch packs rows on the host, so their lengths are copied there from a GPU too.
        """
        before = None if state is None else (_layers_first(state[0]), _layers_first(state[1]))
        # The meta device has no lengths; there, rows are full.
        if mask is None or s.is_meta:
            outputs, after = self.recurrence(s, before)
        elif torch.compiler.is_exporting():
            outputs, after = run_unpacked(self.recurrence, s, mask, before)
        else:
            packed = pack_padded_sequence(s, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
            outputs, after = self.recurrence(packed, before)
            outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=s.shape[1])
        return outputs, (after[0].transpose(0, 1), after[1].transpose(0, 1))


class PlainLstm(_Recurrence):
    """An LSTM that starts from zeros (Hochreiter & Schmidhuber 1997; bidirectional: Graves & Schmidhuber 2005)."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """
        Args:
            s: [N, T, D].
            mask: [N, T] bool, True where there is a word, None for all.
        """
        outputs, _ = self.run(s, mask, None)
        return outputs


class LstmWithState(_Recurrence):
    """An LSTM that starts from the final state of the component before it, if there is one, and passes on its final
    state.

    This is the thesis's LSTM-AL: h and c of both directions, detached, are the next component's initial state.
    """

    hands_on_state = True

    def forward(
        self, s: torch.Tensor, mask: torch.Tensor | None = None, state: LstmState | None = None
    ) -> tuple[torch.Tensor, LstmState]:
        """
        Args:
            s: [N, T, D].
            mask: [N, T].
            state: of the component before, with the same layers, directions and width.
        """
        if state is not None:
            layers, hidden = self.recurrence.num_layers, self.recurrence.hidden_size
            wanted = (layers * (2 if self.recurrence.bidirectional else 1), hidden)
            if tuple(state[0].shape[1:]) != wanted:
                raise SpecError(
                    f"block `lstm` starts from a state of shape {wanted}, but gets {tuple(state[0].shape[1:])}",
                    hint="give neighbours with `hand_on_state` the same hidden, layers and bidirectional",
                )
        return self.run(s, mask, state)


def _layers_first(state: torch.Tensor) -> torch.Tensor:
    return state.transpose(0, 1).contiguous()
