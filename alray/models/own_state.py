"""Checks of the state of a user's blocks and methods: each component has its own, and a checkpoint holds all of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from alray.core.errors import SpecError


class Owners:
    """Which component holds which parameters, and which modules with parameters or buffers."""

    def __init__(self) -> None:
        # By identity, and weak: a component may be built more than once, and what is gone belongs to nobody.
        self._owners = WeakIdKeyDictionary()

    def claim(self, index: int, module: nn.Module) -> None:
        """Note that component `index` holds all parts of `module`. Raises SpecError if another component holds one."""
        for what, part in _parts(module):
            owner = self._owners.setdefault(part, index)
            if owner != index:
                raise SpecError(
                    f"components {min(owner, index)} and {max(owner, index)} share {what}",
                    key=f"model.components[{index}]",
                    hint="make a new one for each component: each is trained by itself, perhaps in another process",
                )

    def forget(self, module: nn.Module) -> None:
        """Keep no references to the parts of `module`: torch swaps no tensor that has weak references."""
        for _, part in _parts(module):
            self._owners.pop(part, None)


def _parts(module: nn.Module) -> list[tuple[str, object]]:
    """The modules with parameters or buffers, and the parameters, each after the words for it in a message."""
    parts: list[tuple[str, object]] = [
        (f"the module `{name or type(part).__name__}`", part)
        for name, part in module.named_modules(remove_duplicate=False)
        if part._parameters or part._buffers
    ]
    return parts + [(f"the parameter `{name}`", part) for name, part in module.named_parameters(remove_duplicate=False)]


def require_tensors(module: nn.Module, what: str, key: str) -> None:
    """Raise SpecError if the state of a module has anything besides tensors, as `get_extra_state` may give it, a tensor
    without a shape, as lazy layers have until they are called, or a complex one, as it was made; or if an embedding in
    it has sparse gradients.

    Args:
        what: the module, as the message names it.
        key: of the spec that it belongs to.
    """
    for name, value in module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            raise SpecError(
                f"the state of {what} has `{name.removeprefix('f.body.')}`, a {type(value).__name__} and no tensor: no "
                "checkpoint would hold it",
                key=key,
                hint="let `get_extra_state` give a tensor, or keep the value in a buffer",
            )
        if nn.parameter.is_lazy(value):
            raise SpecError(
                f"`{name.removeprefix('f.body.')}` of {what} is that of a lazy layer, and has no shape yet",
                key=key,
                hint="give the layer its sizes; a block is told the shape of what it takes",
            )
    for name, value in itertools.chain(module.named_parameters(), module.named_buffers()):
        if value.is_complex():  # `Module.to` with the type of the run would keep its real part
            raise SpecError(
                f"`{name.removeprefix('f.body.')}` of {what} is complex, and a run has real numbers of one type",
                key=key,
                hint="keep its real and imaginary parts (`torch.view_as_real`), and join them in `forward`",
            )
    for name, part in module.named_modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse:
            raise SpecError(
                f"the embedding `{name.removeprefix('f.body.')}` of {what} has sparse gradients, and alray adds, sends "
                "and averages dense ones",
                key=key,
                hint="leave `sparse` out",
            )


def unsaved_buffers(module: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that were registered with `persistent=False`, by name: no checkpoint holds them."""
    return {
        f"{path}.{name}" if path else name: buffer
        for path, part in module.named_modules()
        for name, buffer in part._buffers.items()
        if buffer is not None and name in part._non_persistent_buffers_set
    }


def require_same_buffers(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], index: int) -> None:
    """Raise SpecError if an unsaved buffer of component `index` has other values than before."""
    for name, value in before.items():
        if not torch.equal(value, after[name]):
            raise _changes(name, index)


def require_untouched_buffers(module: nn.Module, again: Callable[[], object], index: int) -> None:
    """Raise SpecError if `again` replaces an unsaved buffer of component `index`, or writes to it.

    Changes in place are counted by torch and need no values, so this also works on the meta device.

    Args:
        again: a forward pass of the module, which is not the first: that one may fill a cache.
    """
    before = {name: (buffer, buffer._version) for name, buffer in unsaved_buffers(module).items()}
    again()
    for name, buffer in unsaved_buffers(module).items():
        if name in before and (before[name][0] is not buffer or before[name][1] != buffer._version):
            raise _changes(name, index)


def _changes(name: str, index: int) -> SpecError:
    buffer = name.removeprefix("f.body.")
    return SpecError(
        f"the buffer `{buffer}` changes in training, but has persistent=False: no checkpoint would hold it",
        key=f"model.components[{index}]",
        hint="register it without persistent=False, so that a run that is resumed ends in the same weights",
    )
