"""Blocks of users that take part in the backward pass: by hooks, by recomputing, or by gradients within a forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """Two layers, from `[N, elements]` or `[N, T, elements]` to as many numbers; a subclass calls them in its way."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__()
        self.first = nn.Linear(width if input is None else input.elements, width)
        self.second = nn.Linear(width, width)

    def body(self, s: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(torch.relu(self.first(s))))

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.body(s)


class Checkpointed(Block):
    """Saved tensors come from a second forward in the backward pass."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        once: torch.Tensor = checkpoint(lambda s: torch.relu(self.first(s)), s, use_reentrant=False)
        twice: torch.Tensor = checkpoint(self.body, once, use_reentrant=False)
        return twice


class Nested(Block):
    """The backward pass has a whole second forward and backward in it; the weights are used in two of them."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return self.body(self.body(self.body(s)))
        for _ in range(2):
            s = checkpoint(self.body, s, use_reentrant=True)
        return self.body(s)


class Moved(Block):
    """Saved tensors pass through the user's functions."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.double(), lambda saved: saved.to(s.dtype)):
            return self.body(s)


class Masked(Block):
    """Gradients of a weight are changed before they are added up."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__(input, width)
        self.first.weight.register_hook(lambda gradient: gradient * (torch.arange(gradient.shape[1]) % 2))
        self.second.bias.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))


class Clamped(Block):
    """Sums of gradients are changed."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__(input, width)

        @torch.no_grad()
        def clamp(weight: torch.Tensor) -> None:
            assert weight.grad is not None
            weight.grad.clamp_(-1e-2, 1e-2)

        self.first.weight.register_post_accumulate_grad_hook(clamp)


class Energy(Block):
    """The output is the gradient of an energy, and its own gradient goes through that."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.enable_grad():
            s = s if s.requires_grad else s.detach().requires_grad_()
            energy = self.second(torch.tanh(self.first(s))).sum()
            (gradient,) = torch.autograd.grad(energy, s, create_graph=True)
        return functional.pad(gradient, (0, self.second.out_features - gradient.shape[-1]))


class Stepped(Block):
    """One step of the weights towards a small output, within the forward, as in meta-learning."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.enable_grad():
            loss = self.body(s).square().mean()
            (step,) = torch.autograd.grad(loss, self.second.weight, create_graph=True)
        return functional.linear(torch.relu(self.first(s)), self.second.weight - 0.1 * step)


class Equilibrium(Block):
    """A fixed point whose backward pass calls autograd several times (Bai et al. 2019)."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        s = self.first(s)

        def inner(z: torch.Tensor) -> torch.Tensor:
            return torch.tanh(0.3 * self.second(z) + s)

        with torch.no_grad():
            z = torch.zeros_like(s)
            for _ in range(3):
                z = inner(z)
        if not torch.is_grad_enabled():
            return z
        z = inner(z)
        start = z.detach().requires_grad_()
        end = inner(start)

        def solve(gradient: torch.Tensor) -> torch.Tensor:
            found = gradient
            for _ in range(3):
                found = torch.autograd.grad(end, start, found, retain_graph=True)[0] + gradient
            return found

        z.register_hook(solve)
        return z


class Again(torch.autograd.Function):
    """Computes its function again in the backward pass, and asks for the gradients of its weights by name."""

    @staticmethod
    def forward(ctx: Any, function: Any, s: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.function, ctx.weights, ctx.s = function, weights, s.detach()
        result: torch.Tensor = function(s)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            s = ctx.s.requires_grad_()
            return None, *torch.autograd.grad(ctx.function(s), (s, *ctx.weights), gradient)


class ByFunction(Block):
    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        result: torch.Tensor = Again.apply(self.body, s, *self.parameters())
        return result


class Scaled(torch.autograd.Function):
    """Keeps a name of its own, where torch has the name of the operation."""

    @staticmethod
    def forward(ctx: Any, s: torch.Tensor, name: str) -> torch.Tensor:
        ctx.name = name
        return s * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return gradient * 2, None


class Named(Block):
    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return torch.tanh(self.second(Scaled.apply(self.first(s), "mine")))


class InPlace(Block):
    """What layers give is changed in place."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return self.second(functional.relu(self.first(s).mul_(2), inplace=True)).tanh_()


class Hooked(Block):
    """Hooks of modules."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__(input, width)
        self.first.register_full_backward_hook(lambda layer, to_input, from_output: (to_input[0] * 0.5,))
        self.second.register_full_backward_pre_hook(lambda layer, gradient: (gradient[0] * 2,))
        self.second.register_forward_hook(lambda layer, given, output: output + 1)


class Ignored(torch.autograd.Function):
    """Gives no gradient."""

    @staticmethod
    def forward(ctx: Any, s: torch.Tensor) -> torch.Tensor:
        return s.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> None:  # type: ignore[override]
        return None


class Unreached(Block):
    """A layer has no gradient, which is not one of zeros."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        ignored: torch.Tensor = Ignored.apply(self.second(s))
        return torch.tanh(self.first(s)) + ignored


class Tied(Block):
    """Two layers with one weight, which a function uses between them and after them too."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__(input, width)
        self.third = nn.Linear(width, width, bias=False)
        self.third.weight = self.second.weight

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        s = torch.tanh(self.third(self.first(s)) @ self.third.weight)
        s = torch.tanh(self.second(s)) @ self.second.weight.t()
        return torch.tanh(self.third(s) + self.second.weight.mean())


class Lowered(Block):
    """Autocast by the block itself, with a layer that is called twice."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.second(self.body(s)).float()


class Mapped(Block):
    """A layer is called within a transformation of functions."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return torch.tanh(self.second(torch.func.vmap(self.first)(s)))


class Normed(Block):
    """A parametrization computes a weight, and changes its buffers each time."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__(input, width)
        self.second = spectral_norm(self.second)


class Frozen(Block):
    """Layers without gradients, one of them for a while only."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__(input, width)
        self.first.weight.requires_grad_(False)

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        with torch.no_grad():
            shift = self.second(self.first(s))
        return self.body(s) + shift


class Turned(Block):
    """Weights that do not lie in rows."""

    def __init__(self, input: Any = None, width: int = 7) -> None:
        super().__init__(input, width)
        self.second.weight = nn.Parameter(self.second.weight.detach().t().contiguous().t())


class Asked(Block):
    """The gradient of a weight within a forward that is computed again in the backward pass."""

    def asking(self, s: torch.Tensor) -> torch.Tensor:
        out = self.body(s)
        (gradient,) = torch.autograd.grad(out.square().mean(), self.second.weight, create_graph=True)
        return out * (1.0 + gradient.norm())

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return self.body(s)
        found: torch.Tensor = checkpoint(self.asking, s, use_reentrant=False)
        return found


class Looked(Block):
    """A hook of the backward pass looks at the gradient of a weight, and changes nothing."""

    def forward(self, s: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        inner = torch.relu(self.first(s))
        if inner.requires_grad:
            inner.register_hook(lambda _: self.look(inner.detach()))
        return torch.tanh(self.second(inner))

    def look(self, inner: torch.Tensor) -> None:
        with torch.enable_grad():
            torch.autograd.grad(self.second(inner.requires_grad_()).square().sum(), self.second.weight)


BLOCKS = [
    *(Checkpointed, Nested, Moved, Masked, Clamped, Energy, Stepped, Equilibrium, ByFunction, InPlace, Hooked),
    *(Unreached, Tied, Lowered, Mapped, Normed, Frozen, Turned, Asked, Looked, Named),
]
