"""Everything that alray asks of an accelerator, such as a GPU.

No other file names `torch.cuda`. Streams, events and memory go through `torch.accelerator`, so they work on whatever
torch offers: `cuda` (NVIDIA, and AMD by ROCm), `xpu`, a device that another package brings. What torch offers for some
of them only is asked of the module of the device, or is a matter of CUDA, and then it says so.

The current device and the current stream belong to a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import torch

from alray.core.errors import SystemFault

AUTO = "auto"
"""The kind of device that means: the accelerator that torch offers."""
_WITHOUT = ("cpu", "meta")
SHOWN_BY = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "hpu": "HABANA_VISIBLE_MODULES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
    "xpu": "ZE_AFFINITY_MASK",
}
"""The variable of the environment that hides accelerators of a kind, which Ray sets."""
PLAIN_TENSORS: set[type[torch.Tensor]] = {torch.Tensor, torch.nn.Parameter}
"""Classes of tensors on which torch's operations do what its documentation says. Other subclasses may do anything. A
device that is written in Python adds its class."""


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is no tensor of a subclass, whose operations may do anything."""
    return type(tensor) in PLAIN_TENSORS


def is_accelerator(device: torch.device) -> bool:
    """Whether it computes by itself, while the host goes on."""
    return device.type not in _WITHOUT


def kind(wanted: str = AUTO) -> str:
    """torch's name of a kind of device. That of `auto` is the accelerator that this torch is made for, whether there is
    one here or not, and `cuda` if it is made for none: stages elsewhere may have one."""
    if wanted != AUTO:
        return wanted
    made_for = torch.accelerator.current_accelerator()
    return "cuda" if made_for is None else made_for.type


def kinds() -> tuple[str, ...]:
    """The kinds of devices that a computation may run on, here or elsewhere."""
    return tuple(dict.fromkeys(("cpu", "cuda", kind())))


def available(wanted: str = AUTO) -> torch.device | None:
    """The first accelerator of this kind that this process can use; None if there is none."""
    offered = torch.accelerator.current_accelerator(check_available=True)
    return None if offered is None or offered.type != kind(wanted) else torch.device(offered.type, 0)


def count() -> int:
    """The number of accelerators that this process sees. Their driver may be too old for torch (`available`)."""
    return torch.accelerator.device_count()


def name(device: torch.device) -> str:
    """The model of an accelerator, or its kind where torch does not say the model."""
    name_of = getattr(torch.get_device_module(device), "get_device_name", None)
    return str(device.type if name_of is None else name_of(device))


def knows_bfloat16(device: torch.device) -> bool:
    """Whether it computes in bfloat16. An accelerator that torch does not ask about it counts as able to."""
    if device.type == "cuda":  # an older GPU emulates it, which is slow
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    asked = getattr(torch.get_device_module(device), "is_bf16_supported", None)
    return asked is None or bool(asked())


# The current device, and random numbers


def use(device: torch.device) -> None:
    """Make it the current device of the calling thread: new streams and events belong to it."""
    torch.accelerator.set_device_index(device)


def using(device: torch.device) -> AbstractContextManager[None]:
    """Inside, the current device of the calling thread; of a CPU nothing changes.

    A thread that has none would set up the first GPU for itself, which takes 500 MB there, where it lets go of an event
    of another one, asks for it or waits for it.
    """
    return torch.accelerator.device_index(device.index)


def current() -> torch.device:
    """The current device of the calling thread."""
    return torch.device(kind(), torch.accelerator.current_device_index())


def seed(device: torch.device, value: int) -> None:
    """Seed the generator from which torch's functions draw on this device, and that of no other device."""
    with using(device):
        torch.get_device_module(device).manual_seed(value)


def generators_forked(device: torch.device) -> AbstractContextManager[None]:
    """At the end, torch's generators have the state of the beginning: that of the CPU, and that of the accelerator."""
    if not is_accelerator(device):
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device], device_type=device.type)


# Streams and events


def current_stream(device: torch.device) -> torch.Stream:
    """The stream in which operations of the calling thread on this device run."""
    return torch.accelerator.current_stream(device)


def own_stream(device: torch.device) -> torch.Stream | None:
    """A stream that runs beside the current one; None on a CPU, which has none."""
    return torch.Stream(device) if is_accelerator(device) else None


def within(stream: torch.Stream | None) -> AbstractContextManager[object]:
    """Inside, the calling thread's operations run in this stream; None: in the current one."""
    return nullcontext() if stream is None else stream


def recorded(device: torch.device, *, timed: bool = False) -> torch.Event:
    """An event in the current stream of the device: it passes when all operations before it are done."""
    event = torch.Event(device, enable_timing=timed)
    event.record(current_stream(device))
    return event


def wait_for_current_stream(device: torch.device) -> None:
    """Wait until all that the calling thread has given to the current stream of an accelerator is done."""
    current_stream(device).synchronize()


def wait_for_all(device: torch.device) -> None:
    """Wait until the device has nothing to do, in any stream. Does nothing for a CPU."""
    if is_accelerator(device):
        torch.accelerator.synchronize(device)


# Memory of the accelerator


def start_memory_peak(device: torch.device) -> int:
    """Start a new peak. Returns the bytes that torch's allocator has given out."""
    torch.accelerator.reset_peak_memory_stats(device)
    return torch.accelerator.memory_allocated(device)


def memory_peak_bytes(device: torch.device) -> int:
    """The most bytes that torch's allocator had given out since `start_memory_peak`."""
    return torch.accelerator.max_memory_allocated(device)


def free_unused_memory(*, after_failure: bool = False) -> None:
    """Give back to the device what torch's allocator keeps for later: another process may need it. Does nothing where
    there is no accelerator.

    Args:
        after_failure: whether an error is on its way. If it is one of the device, CUDA repeats it here.
    """
    with suppress(torch.AcceleratorError) if after_failure else nullcontext():
        torch.accelerator.empty_cache()


def free_memory_bytes(device: torch.device) -> int:
    """The memory of an accelerator that no process has taken."""
    return torch.accelerator.get_memory_info(device)[0]


def least_memory_bytes() -> int:
    """The memory of the smallest accelerator that this process sees, used or not."""
    return min(map(_memory_bytes, range(count())))


def _memory_bytes(index: int) -> int:
    """Its properties tell it without a context, which would take memory of every accelerator of the machine."""
    device = torch.device(kind(), index)
    properties_of = getattr(torch.get_device_module(device), "get_device_properties", None)
    if properties_of is None:
        return torch.accelerator.get_memory_info(index)[1]
    return int(properties_of(index).total_memory)


def shown_by(wanted: str) -> str | None:
    """The variable of the environment that says which accelerators of a kind this process sees, by number or name, as
    `0,1`; None: nothing hides them. Ray hides AMD's by a variable of its own."""
    of_kind = kind(wanted)
    of_amd = of_kind == "cuda" and torch.version.hip and "HIP_VISIBLE_DEVICES" in os.environ
    return "HIP_VISIBLE_DEVICES" if of_amd else SHOWN_BY.get(of_kind)


# Host memory that an accelerator copies from and to by itself


@contextmanager
def pinning() -> Iterator[None]:
    """Around what pins memory of the host. Raises SystemFault where no more can be pinned: torch words that as it does
    for the memory of a GPU."""
    try:
        yield
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        raise SystemFault(
            "ran out of memory of the host that can be pinned for a GPU",
            hint="end other programs on this machine, or use a smaller data.batch_size or pipeline.in_flight",
        ) from error


def host_buffer(nbytes: int, device: torch.device) -> torch.Tensor:
    """Flat memory of the host, pinned if the device is an accelerator."""
    with pinning():
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=is_accelerator(device))


def pin(memory: torch.Tensor, device: torch.device) -> int | None:
    """Pin memory that torch did not allocate. It must live until `unpin`.

    CUDA can do this. With another accelerator the memory stays as it is, and the host waits for each copy.

    Returns:
        What `unpin` takes; None if there is nothing to undo.
    """
    if device.type != "cuda":
        return None
    with using(device), pinning():
        torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))
    return memory.data_ptr()


def unpin(address: int, device: torch.device) -> None:
    """Undo `pin`, in any thread."""
    with using(device):
        torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(address))


# NCCL


def has_nccl(wanted: str) -> bool:
    """Whether accelerators of this kind pass tensors to each other by NCCL: NVIDIA's, and AMD's by ROCm's."""
    return kind(wanted) == "cuda"
