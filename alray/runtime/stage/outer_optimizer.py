"""The outer optimizer of replicas that train apart: DiLoCo (Douillard et al., arXiv 2311.08105)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from alray.config.sections.replicas import OuterOptimizer


class OuterSteps:
    """What the replicas of a component start from, and the momentum that changes it at each meeting.

    It is the same on all replicas. With start x, weights w of each replica, and momentum m, a meeting does

        d = mean over replicas of (x - w),   m = momentum m + d,   x = x - lr (d + momentum m)

    and the replicas go on from x, or with a delay from (w + x) / 2 (arXiv 2501.18512, section 2.3, with alpha 0.5). So
    it takes twice the memory of the parameters, and with a delay three times.
    """

    def __init__(self, section: OuterOptimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._starts = [parameter.detach().clone() for parameter in parameters]
        self._sgd = torch.optim.SGD(
            self._starts, lr=section.lr, momentum=section.momentum, nesterov=section.momentum > 0
        )
        self.waiting: list[torch.Tensor] | None = None
        """The mean difference of a meeting whose result is not yet taken."""

    def differences(self) -> list[torch.Tensor]:
        """How far this replica has moved from the start, x - w."""
        return [start - own.detach() for start, own in zip(self._starts, self._parameters, strict=True)]

    def take_waiting(self, *, late: bool) -> None:
        """Change the start by the mean difference, and let this replica go on from it.

        There is none where a run was resumed on another number of replicas after the meeting: nothing changes then.

        Args:
            late: whether it has trained on since the meeting, and keeps half of its own weights.
        """
        if self.waiting is None:
            return
        for start, difference in zip(self._starts, self.waiting, strict=True):
            start.grad = difference
        self._sgd.step()
        self._sgd.zero_grad()
        with torch.no_grad():
            for start, own in zip(self._starts, self._parameters, strict=True):
                own.copy_(0.5 * own + 0.5 * start if late else start)
        self.waiting = None

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The state after a mini-batch, by name: tensors on the CPU that no later step changes."""
        state = {f"start.{number}": start for number, start in enumerate(self._starts)}
        for number, start in enumerate(self._starts):
            momentum = self._sgd.state.get(start, {}).get("momentum_buffer")
            if momentum is not None:
                state[f"momentum.{number}"] = momentum
        state |= {f"waiting.{number}": mean for number, mean in enumerate(self.waiting or ())}
        return {name: value.to("cpu", copy=True) for name, value in state.items()}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load a state that `state_dict` returned; an empty one begins anew from the weights as they are."""
        waiting = []
        for number, (start, own) in enumerate(zip(self._starts, self._parameters, strict=True)):
            start.copy_(state.get(f"start.{number}", own.detach()))
            self._sgd.state.pop(start, None)
            if f"momentum.{number}" in state:
                self._sgd.state[start]["momentum_buffer"] = state[f"momentum.{number}"].to(start.device)
            if f"waiting.{number}" in state:
                waiting.append(state[f"waiting.{number}"].to(start.device))
        self.waiting = waiting or None
