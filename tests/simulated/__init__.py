"""An accelerator made of this processor: for tests of what alray does with a GPU, where there is none.

`install` adds a kind of device to torch, `sim`, for the rest of the process: nothing of it can be taken back. Its
tensors lie in host memory and its operations run at once, by the processor's kernels, so its bits are those of a CPU.
What a GPU does later and at the same time is not played, but checked (`order.py`): that nothing depends on work for
which nobody has waited. Such a fault is found whatever the timing.

| | a GPU | here |
|---|---|---|
| an operation in another stream, without a wait | reads or writes too early, now and then | `Fault` at once |
| memory that is freed while another stream may use it | is given out again, and overwritten | `Fault` when freed |
| a copy to pinned host memory | arrives later | the host sees rubbish until it waits |
| a copy from pinned host memory that the host changes | copies the change, now and then | `Fault` when the host waits |
| an event of the second device in a thread that has no current one | the first one is set up for it | `Fault` |
| tensors of two devices in one operation | an error | an error |
| more memory than there is | torch.OutOfMemoryError | the same, above `limit_bytes` |
| backward | runs in a thread of its own | the same |
| random numbers | a generator of each device | that of the processor |
"""

from __future__ import annotations

import os
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._device import _device_constructors

from alray.core import accelerator

from ..backward_threads import in_thread
from . import kernels
from .order import KIND, MACHINE, Event, Fault, Stream
from .tensors import SimulatedTensor

__all__ = ["KIND", "MACHINE", "Event", "Fault", "SimulatedTensor", "Stream", "install"]


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    def is_available(self) -> bool:
        return True

    def has_primary_context(self, index: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


def install(count: int = 2) -> None:
    """Make `sim` the accelerator of this process, with so many devices."""
    MACHINE.count = count
    accelerator.SHOWN_BY[KIND] = "CUDA_VISIBLE_DEVICES"  # Ray takes a device that it does not know for NVIDIA's
    accelerator.has_nccl = _has_stand_in
    accelerator.PLAIN_TENSORS.add(SimulatedTensor)
    backend_registration._setup_privateuseone_for_python_backend(KIND, backend_module=_module(), hook=_Hooks())
    kernels.register()
    _replace_streams()
    _replace_pinned_memory()
    _replace_backward()
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        clear()
        kernels.forget_lowered_weights()

    torch.clear_autocast_cache = clear_both


def _has_stand_in(wanted: str) -> bool:
    """Whether this device has a stand-in for NCCL (nccl.py): not where it plays an accelerator that NCCL does not
    know."""
    return accelerator.kind(wanted) == KIND and os.environ.get("ALRAY_TEST_NCCL") != "none"


def _module() -> Any:
    """What torch asks of `torch.sim`."""
    return SimpleNamespace(
        is_initialized=lambda: True,
        is_available=lambda: True,
        device_count=lambda: MACHINE.count,
        current_device=MACHINE.current_index,
        _is_in_bad_fork=lambda: False,
        manual_seed=lambda seed: None,
        manual_seed_all=lambda seed: None,
        get_rng_state=lambda device: torch.get_rng_state(),
        set_rng_state=lambda state, device: torch.set_rng_state(state),
        get_amp_supported_dtype=lambda: [torch.bfloat16],
        is_bf16_supported=lambda: True,
        get_device_name=lambda device: "simulated accelerator",
    )


def _replace_streams() -> None:
    """Those of a device that is written in Python do nothing by themselves (pytorch issue 195458)."""
    torch.Stream, torch.Event = Stream, Event  # type: ignore[misc,assignment]
    replaced: dict[str, Any] = {
        "_accelerator_getDeviceIndex": MACHINE.current_index,
        "_accelerator_setDeviceIndex": MACHINE.set_index,
        "_accelerator_exchangeDevice": MACHINE.exchange_index,
        "_accelerator_maybeExchangeDevice": MACHINE.exchange_index,
        "_accelerator_getStream": MACHINE.current_stream,
        "_accelerator_setStream": MACHINE.set_stream,
        "_accelerator_synchronizeDevice": MACHINE.host_waits_for_device,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_emptyCache": MACHINE.empty_cache,
        "_accelerator_getDeviceStats": MACHINE.stats,
        "_accelerator_resetPeakStats": MACHINE.reset_peak,
        "_accelerator_getMemoryInfo": MACHINE.memory_info,
    }
    for name, function in replaced.items():
        assert hasattr(torch._C, name), name
        setattr(torch._C, name, function)


def _replace_pinned_memory() -> None:
    _device_constructors()  # `with torch.device(...)` knows torch's own `empty`
    empty = torch.empty

    def maybe_pinned(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        made = empty(*args, **kwargs)
        return MACHINE.pin_storage(made) if pin_memory else made

    torch.empty = maybe_pinned  # type: ignore[assignment]
    torch.Tensor.pin_memory = lambda self, device=None: MACHINE.pin_storage(self.clone())  # type: ignore[assignment]
    torch.Tensor.is_pinned = lambda self, device=None: MACHINE.is_pinned(self)  # type: ignore[assignment]
    # For memory that torch did not allocate there are calls of CUDA only.
    accelerator.pin = lambda memory, device: MACHINE.pin(memory) if device.type == KIND else None
    accelerator.unpin = lambda address, device: MACHINE.unpin(address)


def _replace_backward() -> None:
    """Backward runs in a thread of its own, as on a GPU. torch would have one for the first device only."""
    run = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    run_in_thread = in_thread(run, lambda: partial(MACHINE.take_over, MACHINE.of_thread()))

    def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        given = [*outputs, *(args[0] or ())]  # with gradients: an output may be an edge of the graph
        on_device = any(isinstance(each, SimulatedTensor) for each in given)
        return (run_in_thread if on_device else run)(outputs, *args, **kwargs)

    torch.autograd._engine_run_backward = run_backward  # type: ignore[attr-defined]
