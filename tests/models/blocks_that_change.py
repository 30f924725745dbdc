"""Blocks of a user's whose forward changes something of the block: its buffers, its weights, or its layers."""

import copy

import torch
from torch import nn
from torch.ao.quantization import FusedMovingAvgObsFakeQuantize
from torch.autograd import forward_ad
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, input, width):
        super().__init__()
        self.l = nn.Linear(input.elements, width)
        self.register_buffer("passes", torch.zeros(()))

    def counts(self, s):
        """The number of this forward in training, from 1; 0 in any other."""
        if not self.training or s.is_meta:
            return 0
        self.passes += 1
        return int(self.passes)


class Rebinding(Block):
    """A running mean that is a new tensor after each forward."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, s, mask=None):
        y = self.l(s)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        return torch.tanh(y - self.mean)


class WritingByData(Rebinding):
    """One that torch does not see being written."""

    def forward(self, s, mask=None):
        y = self.l(s)
        if self.training:
            self.mean.data.mul_(0.9).add_(0.1 * y.detach().mean(0))
        return torch.tanh(y - self.mean.clone())


class SometimesWriting(Rebinding):
    """One that every third forward changes."""

    def forward(self, s, mask=None):
        y = self.l(s)
        if self.counts(s) % 3 == 1:
            self.mean.copy_(y.detach().mean(0))
        return torch.tanh(y - self.mean.clone())


class Coming(Block):
    """A buffer that comes with the fifth forward."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.register_buffer("late", None)

    def forward(self, s, mask=None):
        if self.counts(s) > 4 and self.late is None:
            self.late = torch.full((self.l.out_features,), 0.1)
        y = self.l(s)
        return torch.tanh(y if self.late is None else y + self.late)


class Wrapping(Block):
    """Wraps the forward of its layer, once."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.wraps = True

    def forward(self, s, mask=None):
        if self.counts(s) and self.wraps:
            self.wraps = False
            plain = self.l.forward
            self.l.forward = lambda given: 2 * plain(given)
        return torch.tanh(self.l(s))


class Unwrapping(Block):
    """Wraps it, and takes that back."""

    def forward(self, s, mask=None):
        plain = self.l.forward
        self.l.forward = lambda given: 2 * plain(given)
        try:
            return torch.tanh(self.l(s))
        finally:
            del self.l.forward


class Copying(Block):
    """Computes with a copy of its layer, too."""

    def forward(self, s, mask=None):
        copied = copy.deepcopy(self.l).requires_grad_(False)
        return torch.tanh(self.l(s) + 0.1 * copied(s))


class UsingLater(Block):
    """From the seventh forward on it uses its weight in four places, of which one is its layer's."""

    def forward(self, s, mask=None):
        y = torch.tanh(self.l(s))
        if self.counts(s) > 6:
            y = y + 0.1 * functional.linear(s, self.l.weight) + 0.06 * torch.tanh(s @ self.l.weight.t())
            y = y + 0.05 * self.l(y)
        return y


class Tangent(Block):
    """Takes a derivative by forward mode."""

    def forward(self, s, mask=None):
        with forward_ad.dual_level():
            y = torch.tanh(self.l(forward_ad.make_dual(s, torch.ones_like(s))))
            value, tangent = forward_ad.unpack_dual(y)
        return value + 0.1 * tangent


BLOCKS = (
    Rebinding,
    WritingByData,
    SometimesWriting,
    Wrapping,
    Unwrapping,
    Copying,
    UsingLater,
    Tangent,
)
"""Those that train on any stages."""


class Observing(Block):
    """Changes its buffers in evaluation, too: a counter in place, a sum as a new tensor, one that comes with the first
    evaluation, and the range that quantisation-aware training observes, which torch does not see being written."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.register_buffer("sum", torch.zeros(width))
        self.register_buffer("late", None)
        self.quantise = FusedMovingAvgObsFakeQuantize()

    def forward(self, s, mask=None):
        y = self.l(s)
        if not s.is_meta:
            self.passes += 1
            self.sum = self.sum + y.detach().sum(0)
            if not self.training and self.late is None:
                self.late = torch.full((self.l.out_features,), 0.1)
        y = torch.tanh(y * (1 + 0.01 * self.passes) + 0.01 * self.sum)
        return self.quantise(y if self.late is None else y + self.late)


class Unfreezing(Block):
    """A layer begins to learn during the run."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.k = nn.Linear(width, width).requires_grad_(False)

    def forward(self, s, mask=None):
        if self.counts(s) > 6:
            self.k.requires_grad_(True)
        return torch.tanh(self.k(torch.tanh(self.l(s))))


class Scaling(Block):
    """The graph uses a buffer that the next forward overwrites."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, s, mask=None):
        y = self.l(s)
        if self.training:
            self.scale.mul_(0.7).add_(0.3 * y.detach().abs().mean(0))
        return torch.tanh(y * self.scale)


class Normalising(Block):
    """Changes a weight that learns."""

    def forward(self, s, mask=None):
        if self.training:
            with torch.no_grad():
                self.l.weight.div_(self.l.weight.norm())
        return torch.tanh(self.l(s))


class NormalisingByData(Block):
    """So that torch does not see it."""

    def forward(self, s, mask=None):
        if self.training:
            self.l.weight.data.div_(self.l.weight.data.norm())
        return torch.tanh(self.l(s))


class Pruning(Block):
    """Begins to shrink a weight after some micro-batches, so that torch does not see it."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.count = 0

    def forward(self, s, mask=None):
        if self.training:
            self.count += 1
            if self.count > 6:
                self.l.weight.data.mul_(0.9)
        return torch.tanh(self.l(s))


class Moving(Block):
    """Gives a weight other memory, with the same values."""

    def forward(self, s, mask=None):
        if self.training:
            self.l.weight.data = self.l.weight.data.clone()
        return torch.tanh(self.l(s))


class Limited(Block):
    """An embedding whose vectors have a largest norm: torch shortens them as they are used."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.e = nn.Embedding(2, width, max_norm=0.5)

    def forward(self, s, mask=None):
        return torch.tanh(self.l(s)) + self.e((s[:, 0] > 0).long())


class Codebook(Block):
    """A parameter that does not learn by gradients."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.code = nn.Parameter(torch.zeros(width), requires_grad=False)

    def forward(self, s, mask=None):
        y = self.l(s)
        if self.training:
            self.code.data.mul_(0.9).add_(0.1 * y.detach().mean(0))
        return torch.tanh(y - self.code.clone())


class Reusing(Block):
    """Gives its layer the same memory in each forward."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.kept = []

    def forward(self, s, mask=None):
        if not self.counts(s):
            return torch.tanh(self.l(torch.tanh(s)))
        if not self.kept:
            self.kept.append(torch.zeros(3, s.shape[1]))
        return torch.tanh(self.l(self.kept[0].detach().copy_(torch.tanh(s))))


class Sparse(Block):
    """An embedding with sparse gradients."""

    def __init__(self, input, width):
        super().__init__(input, width)
        self.table = nn.Embedding(8, width, sparse=True)

    def forward(self, s, mask=None):
        return torch.tanh(self.l(s) + self.table((s[:, 0] > 0).long()))
