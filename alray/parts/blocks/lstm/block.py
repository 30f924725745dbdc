"""The LSTM block: a recurrent layer that does not read padding."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from alray.core.compat import VF
from alray.core.errors import SpecError
from alray.models.inputs import require_sequence
from alray.models.shape import Shape

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


# --- Without packing: for exported graphs, in which lengths are not known ---

_GATES = 4  # input, forget, cell, output, one above the other in torch's weights
_SHUT = 1.0e4
"""Added to a gate's sum, this makes its sigmoid exactly 0 or 1 in float32."""


def run_unpacked(
    lstm: nn.LSTM, s: torch.Tensor, mask: torch.Tensor, before: tuple[torch.Tensor, torch.Tensor] | None
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """The result of `lstm` on packed rows: outputs `[N, T, directions * hidden]`, 0 at padded positions, and `(h, c)`.

    The final states have that shape too. This is for evaluation only: there is no dropout between layers.

    Every row runs over its full width; the backward direction reads each row's words in reverse. At padded
    positions an extra input closes the input gate and opens the forget gate, so that c keeps its value after the last
    word; h is read at the last word.

    Args:
        s: [N, T, D].
        mask: [N, T], a prefix of every row.
        before: h and c, each [directions * layers, N, hidden], None for zeros.
    """
    lengths = mask.sum(1)
    positions = torch.arange(s.shape[1], device=s.device).unsqueeze(0)
    own_reversed = torch.where(mask, lengths.unsqueeze(1) - 1 - positions, positions)
    rows = torch.arange(s.shape[0], device=s.device)
    padded = (~mask).unsqueeze(2).to(s.dtype)
    finals_h: list[torch.Tensor] = []
    finals_c: list[torch.Tensor] = []
    for layer in range(lstm.num_layers):
        outputs = []
        for direction in range(2 if lstm.bidirectional else 1):
            number = len(finals_h)
            run = _reordered(s, own_reversed) if direction else s
            state = _zeros(lstm, s) if before is None else tuple(part[number : number + 1] for part in before)
            output, _, c = VF.lstm(
                torch.cat([run, padded], 2), state, _weights(lstm, layer, direction), True, 1, 0.0, False, False, True
            )
            finals_h.append(output[rows, lengths - 1])
            finals_c.append(c[0])
            outputs.append(_reordered(output, own_reversed) if direction else output)
        s = torch.cat(outputs, 2).masked_fill(~mask.unsqueeze(2), 0.0)
    return s, (torch.stack(finals_h), torch.stack(finals_c))


def _weights(lstm: nn.LSTM, layer: int, direction: int) -> list[torch.Tensor]:
    """The weights of one layer and direction, with a column for the extra input that marks padding."""
    end = f"_l{layer}{'_reverse' if direction else ''}"
    weight_ih = getattr(lstm, f"weight_ih{end}")
    gates = torch.tensor([-_SHUT, _SHUT, 0.0, 0.0], dtype=weight_ih.dtype, device=weight_ih.device)
    column = gates.repeat_interleave(weight_ih.shape[0] // _GATES).unsqueeze(1)
    return [torch.cat([weight_ih, column], 1), *(getattr(lstm, f"{name}{end}") for name in _OTHERS)]


_OTHERS = ("weight_hh", "bias_ih", "bias_hh")


def _zeros(lstm: nn.LSTM, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    zeros = s.new_zeros(1, s.shape[0], lstm.hidden_size)
    return zeros, zeros


def _reordered(s: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """`[N, T, D]` with the positions of each row in the order `positions` [N, T]."""
    return s.gather(1, positions.unsqueeze(2).expand(-1, -1, s.shape[2]))
