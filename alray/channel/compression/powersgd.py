"""PowerSGD: gradients of matrices as products of two thin matrices."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alray.channel.all_reduce.algorithm import AllReduce
from alray.channel.compression.compression import Compression, State, snapshot
from alray.channel.compression.layout import Layout
from alray.seeds import derive_seed


class PowerSGD(Compression):
    """Of Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression" (2019), algorithms 1 and 2.

    The gradient of a parameter, as a matrix M of its first dimension by all the others, becomes P Q' of rank r by one
    step of power iteration from the Q of the step before:

        P = sum over ranks of M Q      orthonormalised
        Q = sum over ranks of M' P     so that P Q' = P P' (sum of M)

    Two all-reduces a step, of r (rows + columns) elements a matrix instead of rows * columns. Parameters of one
    dimension, and matrices this would not make `min_compression_rate` times smaller, are summed as they are, with P.
    It equals torch's `powerSGD_hook` (a test holds it), but for two things. QR orthonormalises at every rank, so that
    gradients of zeros give zeros, where the hook's Gram-Schmidt gives NaN; and P travels with what is not compressed.

    Error feedback: rank i keeps e = (M + e) - w P Q' of its weighted gradient M, w being its weight, so that over the
    ranks what was applied and what is kept sum to the gradients exactly, also where weights change from step to step.
    """

    kind = "powersgd"

    def __init__(
        self,
        layout: Layout,
        *,
        rank: int = 2,
        seed: int = 0,
        start_iteration: int = 0,
        min_compression_rate: float = 2.0,
        warm_start: bool = True,
        error_feedback: bool = True,
    ) -> None:
        """rank: r, at most the smaller side of a matrix. seed: of the first Q, the same on every rank.

        start_iteration: steps before it are not compressed. warm_start: begin with the Q of the step before; otherwise
        with a new random one. error_feedback: add what was lost to the next step's gradients.
        """
        self._layout, self._seed = layout, seed
        self._start_iteration, self._warm_start = start_iteration, warm_start
        self._iteration = 0
        self._compressed: list[int] = []
        self._kept: list[int] = []
        self._p_shapes: list[tuple[int, int]] = []
        self._q_shapes: list[tuple[int, int]] = []
        for place, shape in enumerate(layout.shapes):
            rows, columns = _sides(shape)
            width = min(rows, columns, rank)
            if (rows + columns) * width * min_compression_rate < rows * columns:
                self._compressed.append(place)
                self._p_shapes.append((rows, width))
                self._q_shapes.append((columns, width))
            else:
                self._kept.append(place)
        kept_size = sum(layout.sizes[place] for place in self._kept)
        self._p_sizes = [kept_size, *(rows * width for rows, width in self._p_shapes)]
        self._q_sizes = [columns * width for columns, width in self._q_shapes]
        self._p_message = torch.zeros(sum(self._p_sizes), dtype=layout.dtype, device=layout.device)
        self._q_message = torch.zeros(sum(self._q_sizes), dtype=layout.dtype, device=layout.device)
        self._error = layout.zeros() if error_feedback else None

    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        if self._iteration < self._start_iteration or not self._compressed:
            over.sum(flat)
        else:
            if self._error is not None:
                self._error += flat
                flat.copy_(self._error)
            self._approximate(flat, over)
            if self._error is not None:
                self._error.sub_(flat, alpha=weight)
                self._clear_error_of_kept(self._error)
        self._iteration += 1

    def _approximate(self, flat: torch.Tensor, over: AllReduce) -> None:
        gradients = self._layout.views(flat)
        matrices = [
            gradients[place].view(shape[0], -1) for place, shape in zip(self._compressed, self._p_shapes, strict=True)
        ]
        kept, *ps = self._p_message.split(self._p_sizes)
        ps = [p.view(shape) for p, shape in zip(ps, self._p_shapes, strict=True)]
        qs = [q.view(shape) for q, shape in zip(self._q_message.split(self._q_sizes), self._q_shapes, strict=True)]
        if self._iteration == self._start_iteration or not self._warm_start:
            self._draw(qs)
        kept_parts = kept.split([self._layout.sizes[place] for place in self._kept])
        for place, part in zip(self._kept, kept_parts, strict=True):
            part.copy_(gradients[place].view(-1))
        for matrix, p, q in zip(matrices, ps, qs, strict=True):
            torch.mm(matrix, _orthonormal(q), out=p)
        over.sum(self._p_message)
        for place, part in zip(self._kept, kept_parts, strict=True):
            gradients[place].view(-1).copy_(part)
        for matrix, p, q in zip(matrices, ps, qs, strict=True):
            p.copy_(_orthonormal(p))
            torch.mm(matrix.t(), p, out=q)
        over.sum(self._q_message)
        for matrix, p, q in zip(matrices, ps, qs, strict=True):
            torch.mm(p, q.t(), out=matrix)

    def _draw(self, qs: list[torch.Tensor]) -> None:
        """Standard normal, the same on every rank; by iteration, so that a cold start projects anew each time."""
        for number, q in enumerate(qs):
            seed = derive_seed(self._seed, "powersgd", number, self._iteration)
            q.copy_(torch.randn(q.shape, generator=torch.Generator().manual_seed(seed), dtype=q.dtype))

    def _clear_error_of_kept(self, error: torch.Tensor) -> None:
        """Nothing of them was lost: over the ranks their errors sum to zero."""
        errors = self._layout.views(error)
        for place in self._kept:
            errors[place].zero_()

    def state_dict(self) -> State:
        state = {"iteration": torch.tensor(self._iteration), "q": snapshot(self._q_message)}
        if self._error is not None:
            state["error"] = snapshot(self._error)
        return state

    def _load(self, state: Mapping[str, torch.Tensor]) -> None:
        self._iteration = int(state["iteration"])
        self._q_message.copy_(state["q"])
        if self._error is not None:
            self._error.copy_(state["error"])


def _sides(shape: torch.Size) -> tuple[int, int]:
    """Rows and columns of a parameter as a matrix; of one with fewer than two dimensions, a row."""
    return (shape[0], shape[1:].numel()) if len(shape) > 1 else (1, shape.numel())


def _orthonormal(matrix: torch.Tensor) -> torch.Tensor:
    """An orthonormal basis of the columns, and of anything where they are dependent. QR knows no 16-bit types."""
    wide = matrix.float() if matrix.dtype.itemsize < torch.float32.itemsize else matrix
    basis: torch.Tensor = torch.linalg.qr(wide).Q
    return basis.to(matrix.dtype)
