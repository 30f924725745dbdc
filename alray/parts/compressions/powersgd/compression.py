"""PowerSGD: the gradient of a matrix is sent as the product of two thin matrices."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from alray.core.randomness.seeds import derive_seed
from alray.runtime.channel.all_reduce import AllReduce
from alray.runtime.channel.compression import Compression, CompressionState, snapshot
from alray.runtime.channel.gradient_layout import GradientLayout

_LEAST_RATE = 2.0
"""A matrix that would not become so many times smaller is sent as it is."""


class PowerSgdCompression(Compression):
    """From Vogels, Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression" (2019), algorithms 1 and 2.

    The gradient of a parameter is seen as a matrix M, its first dimension by all the others. One step of power
    iteration, starting with the Q of the step before, approximates it by P Q' of rank r:

        P = sum over ranks of M Q      orthonormalised
        Q = sum over ranks of M' P     so that P Q' = P P' (sum of M)

    A step takes two all-reduces, with r (rows + columns) elements for each matrix instead of rows * columns. Parameters
    of one dimension, and matrices that would not become twice as small, are summed unchanged,
    together with P. The result equals torch's `powerSGD_hook` (a test checks it), with two differences. Here every rank
    orthonormalises by QR, so that zero gradients give zeros; the hook's Gram-Schmidt gives NaN. And here P and the
    uncompressed gradients travel in one message.

    Error feedback: a rank with weight w keeps e = (M + e) - w P Q' of its weighted gradient M. Summed over the ranks,
    the applied update and the stored errors equal the gradients exactly, also if the weights change between steps.
    """

    def __init__(
        self,
        layout: GradientLayout,
        *,
        rank: int = 2,
        seed: int = 0,
        start_iteration: int = 0,
    ) -> None:
        """
        Args:
            rank: r; it is limited to the smaller side of each matrix.
            seed: for the first Q, the same on every rank.
            start_iteration: the first step that is compressed.
        """
        self._layout = layout
        self._seed = seed
        self._start_iteration = start_iteration
        self._iteration = 0
        self._compressed: list[int] = []
        self._uncompressed: list[int] = []
        self._p_shapes: list[tuple[int, int]] = []
        self._q_shapes: list[tuple[int, int]] = []
        for index, shape in enumerate(layout.shapes):
            rows, columns = _sides(shape)
            width = min(rows, columns, rank)
            if (rows + columns) * width * _LEAST_RATE < rows * columns:
                self._compressed.append(index)
                self._p_shapes.append((rows, width))
                self._q_shapes.append((columns, width))
            else:
                self._uncompressed.append(index)
        uncompressed_size = sum(layout.sizes[index] for index in self._uncompressed)
        self._p_sizes = [uncompressed_size, *(rows * width for rows, width in self._p_shapes)]
        self._q_sizes = [columns * width for columns, width in self._q_shapes]
        self._p_message = torch.zeros(sum(self._p_sizes), dtype=layout.dtype, device=layout.device)
        self._q_message = torch.zeros(sum(self._q_sizes), dtype=layout.dtype, device=layout.device)
        self._error = layout.zeros()

    def reduce(self, flat: torch.Tensor, weight: float, over: AllReduce) -> None:
        if self._iteration < self._start_iteration or not self._compressed:
            over.sum(flat)
        else:
            self._error += flat
            flat.copy_(self._error)
            self._approximate(flat, over)
            self._error.sub_(flat, alpha=weight)
            self._clear_error_of_uncompressed()
        self._iteration += 1

    def _approximate(self, flat: torch.Tensor, over: AllReduce) -> None:
        gradients = self._layout.views(flat)
        matrices = [
            gradients[index].view(shape[0], -1) for index, shape in zip(self._compressed, self._p_shapes, strict=True)
        ]
        uncompressed, *ps = self._p_message.split(self._p_sizes)
        ps = [p.view(shape) for p, shape in zip(ps, self._p_shapes, strict=True)]
        qs = [q.view(shape) for q, shape in zip(self._q_message.split(self._q_sizes), self._q_shapes, strict=True)]
        if self._iteration == self._start_iteration:
            self._draw(qs)
        uncompressed_parts = uncompressed.split([self._layout.sizes[index] for index in self._uncompressed])
        for index, part in zip(self._uncompressed, uncompressed_parts, strict=True):
            part.copy_(gradients[index].view(-1))
        for matrix, p, q in zip(matrices, ps, qs, strict=True):
            torch.mm(matrix, _orthonormal(q), out=p)
        over.sum(self._p_message)
        for index, part in zip(self._uncompressed, uncompressed_parts, strict=True):
            gradients[index].view(-1).copy_(part)
        for matrix, p, q in zip(matrices, ps, qs, strict=True):
            p.copy_(_orthonormal(p))
            torch.mm(matrix.t(), p, out=q)
        over.sum(self._q_message)
        for matrix, p, q in zip(matrices, ps, qs, strict=True):
            torch.mm(p, q.t(), out=matrix)

    def _draw(self, qs: list[torch.Tensor]) -> None:
        """Draw Q from a standard normal distribution: the same on every rank, different in each iteration."""
        for number, q in enumerate(qs):
            seed = derive_seed(self._seed, "powersgd", number, self._iteration)
            q.copy_(torch.randn(q.shape, generator=torch.Generator().manual_seed(seed), dtype=q.dtype))

    def _clear_error_of_uncompressed(self) -> None:
        """Reset the errors of the uncompressed parameters: summed over the ranks they are zero anyway."""
        errors = self._layout.views(self._error)
        for index in self._uncompressed:
            errors[index].zero_()

    def state_dict(self) -> CompressionState:
        return {
            "iteration": torch.tensor(self._iteration),
            "q": snapshot(self._q_message),
            "error": snapshot(self._error),
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        self._iteration = int(state["iteration"])
        self._q_message.copy_(state["q"])
        self._error.copy_(state["error"])


def _sides(shape: torch.Size) -> tuple[int, int]:
    """Return the rows and columns of a parameter as a matrix. With fewer than two dimensions it is one row."""
    return (shape[0], shape[1:].numel()) if len(shape) > 1 else (1, shape.numel())


def _orthonormal(matrix: torch.Tensor) -> torch.Tensor:
    """Return orthonormal columns that span the matrix's columns, and arbitrary ones if those are dependent.

    QR does not support 16-bit types, so it is computed in float32 for them.
    """
    wide = matrix.float() if matrix.dtype.itemsize < torch.float32.itemsize else matrix
    basis: torch.Tensor = torch.linalg.qr(wide).Q
    return basis.to(matrix.dtype)
