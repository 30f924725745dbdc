"""Batch normalisation with statistics over all replicas.

torch's SyncBatchNorm does the same, but on CUDA only and for equal shares of a mini-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from alray.core.compat import BatchNorm
from alray.core.errors import PlanError


class ReplicaSums(Protocol):
    """Sums over the replicas of a stage. All replicas make the same calls in the same order."""

    def sum(self, tensor: torch.Tensor) -> None:
        """Replace a flat tensor by its sum over the replicas."""

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        """The flat tensors of all replicas, as rows."""


def share_norms(module: nn.Module, over: ReplicaSums) -> None:
    """Have every batch normalisation in a module compute its statistics over all replicas.

    Each stays the same object: whoever calls it by another reference than its parent's, as a group of blocks calls its
    encoders, gets the same statistics. Raises PlanError for a batch normalisation whose class overrides `forward`.
    """
    for part in module.modules():
        if isinstance(part, BatchNorm) and not isinstance(part, ReplicaBatchNorm):
            part.__class__ = _shared(type(part))  # type: ignore[arg-type]
            part.alray_over = over


@cache
def _shared(kind: type[BatchNorm]) -> type[BatchNorm]:
    """This class of batch normalisations, with statistics over all replicas."""
    kind = getattr(kind, "alray_whole", kind)  # mixed precision changes nothing in a normalisation by itself
    if kind.forward is not BatchNorm.forward:
        raise PlanError(
            f"the batch normalisation `{kind.__name__}` has its own forward pass, which alray cannot compute over "
            "replicas",
            key="replicas.sync_batch_norm",
            hint="use torch's BatchNorm1d, BatchNorm2d or BatchNorm3d, or set it to false",
        )
    return type(kind.__name__, (ReplicaBatchNorm, kind), {"__module__": kind.__module__})


class ReplicaBatchNorm(BatchNorm):
    """Normalises `[N, C, ...]` by mean and variance over the rows of all replicas; replicas may differ in N.

    It assumes that a loss is a mean over a replica's samples, and that gradients of parameters are averaged over
    the replicas with weights w_i = N_i / sum N. Then all values are those of one process on all rows. All replicas
    update the running statistics in the same way. In evaluation this is torch's batch normalisation.
    """

    alray_over: ReplicaSums

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"batch normalisation takes [N, C, ...], got {input.ndim} dimension(s)")

    def forward(self, s: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor
        if not self.training:
            result = super().forward(s)
            return result
        self._check_input_dim(s)
        moments = _moments(s.detach(), self.alray_over)
        self._track(moments)
        result = _Normalise.apply(s, self.weight, self.bias, moments, self.eps, self.alray_over)
        return result

    @torch.no_grad()
    def _track(self, moments: _Moments) -> None:
        """Update the running statistics as torch does, with the unbiased variance."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        factor = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = moments.variance * (moments.count / (moments.count - 1.0))
        self.running_mean.lerp_(moments.mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)


@dataclass(frozen=True)
class _Moments:
    """Statistics over all replicas, in double precision. All are on the device: the host need not wait for them.

    Attributes:
        mean, variance: [C], the variance biased.
        count: [1], number of values per channel.
        weight: [1], this replica's share of all rows.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    count: torch.Tensor
    weight: torch.Tensor


def _moments(s: torch.Tensor, over: ReplicaSums) -> _Moments:
    """The statistics of `[N, C, ...]` over all replicas.

    Each replica's mean and sum of squared deviations are combined as in Chan et al. 1979, which loses no digits when
    the mean is large.
    """
    channels, count = s.shape[1], s.numel() // s.shape[1]
    variance, mean = torch.var_mean(_wide(s), _axes(s), correction=0)
    # Filled on the device: a copy of the host's numbers would wait for it.
    sizes = [torch.full((1,), size, dtype=torch.float64, device=s.device) for size in (len(s), count)]
    own = torch.cat([*sizes, mean.double(), variance.double() * count])
    rows = over.gather(own)
    samples, counts, means, squares = rows.split([1, 1, channels, channels], dim=1)
    total = counts.sum(0)
    # A replica with more than one value need not ask how many the others have: on a GPU that would cost a wait.
    if count <= 1 and total.item() <= 1.0:
        raise ValueError(f"batch normalisation needs more than one value per channel, got {[*s.shape]} in all")
    mean = (means * counts).sum(0) / total
    spread = (squares + counts * (means - mean).square()).sum(0)
    return _Moments(mean, spread / total, total, len(s) / samples.sum(0))


class _Normalise(torch.autograd.Function):
    """y = (s - mean) / sqrt(variance + eps) * weight + bias, where mean and variance depend on the s of all replicas.

    With x = (s - mean) / sigma, the gradient over N values of a channel is (Ioffe and Szegedy 2015, section 3)

        ds = weight / sigma (dy - sum(dy) / N - x sum(dy x) / N)

    Here dy belongs to a replica's loss, which has weight w_i in the common loss. So the sums are of w_i dy, and the
    result is divided by w_i again, because gradients are averaged with that weight later.
    """

    @staticmethod
    def forward(
        ctx: Any,
        s: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        moments: _Moments,
        eps: float,
        over: ReplicaSums,
    ) -> torch.Tensor:
        # In mixed precision, statistics are as exact as weights.
        dtype = _wide(s).dtype if weight is None else weight.dtype
        mean, variance = moments.mean.to(dtype), moments.variance.to(dtype)
        ctx.save_for_backward(s, weight)
        ctx.moments = moments
        ctx.eps = eps
        ctx.over = over
        return functional.batch_norm(s, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dy: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None, None, None, None]:
        s, weight = ctx.saved_tensors
        moments: _Moments = ctx.moments
        narrow, s, dy = s.dtype, _wide(s), _wide(dy)
        axes, shape = _axes(s), [1, -1, *[1] * (s.ndim - 2)]
        reciprocal = (moments.variance + ctx.eps).rsqrt()  # 1 / sigma
        own = torch.cat(
            [
                dy.sum(axes).double(),
                ((s - moments.mean.to(s.dtype).view(shape)) * dy).sum(axes).double() * reciprocal,
            ]
        )
        sums = own * moments.weight
        ctx.over.sum(sums)
        sum_dy, sum_dyx = (sums / (moments.count * moments.weight)).chunk(2)
        scale = reciprocal if weight is None else reciprocal * weight.double()
        # Per channel, ds = scale dy + slope s + shift.
        slope = -scale * reciprocal * sum_dyx
        shift = -scale * sum_dy - slope * moments.mean
        scale, slope, shift = (each.to(s.dtype).view(shape) for each in (scale, slope, shift))
        ds = torch.addcmul(shift, s, slope).addcmul_(dy, scale).to(narrow)
        if weight is None:
            return ds, None, None, None, None, None
        own_dy, own_dyx = own.to(weight.dtype).chunk(2)
        return ds, own_dyx, own_dy, None, None, None


def _wide(s: torch.Tensor) -> torch.Tensor:
    """The values in float32, or wider, as torch's own norms compute with them: in mixed precision maps are narrower."""
    return s.float() if s.dtype.itemsize < torch.float32.itemsize else s


def _axes(s: torch.Tensor) -> list[int]:
    """All axes but the channels."""
    return [0, *range(2, s.ndim)]
