"""An LSTM over rows of different lengths without packing: for exported graphs, in which lengths are not known."""

from __future__ import annotations

import torch
from torch import nn

from alray.core.compat import VF

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
