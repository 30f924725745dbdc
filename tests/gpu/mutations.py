"""Each wait, event, `record_stream` and guard of the GPU path, taken out one at a time: does a test fail?

`python -m tests.gpu.mutations [WORD...]` makes a copy of the package for each mutation, takes the line out there, and
runs the tests of the simulated device on it. With words it tries those whose name has one of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
AT_ONCE = 2


@dataclass(frozen=True)
class Mutation:
    """A piece of text of a file of the package, and what takes its place."""

    name: str
    file: str
    old: str
    new: str = ""


_COPIED = (
    "    message.tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in message.tensors.items()}"
)
_RECORDED = "    message.copied = accelerator.recorded(device)"
_EACH = "        for tensor in {}:\n            if tensor.numel() > 0:\n                sent"
MUTATIONS = (
    Mutation("feed: the stream waits for the copy", "runtime/stage/feed.py", "        current.wait_event(self.done)\n"),
    Mutation(
        "feed: record_stream", "runtime/stage/feed.py", "            tensor.record_stream(current)", "            pass"
    ),
    Mutation(
        "feed: the event comes after the copy",
        "runtime/stage/feed.py",
        "            return cls(batch, given(batch), accelerator.recorded(device))",
        "            done = accelerator.recorded(device)\n            return cls(batch, given(batch), done)",
    ),
    Mutation(
        "feed: the copy has a stream of its own",
        "runtime/stage/feed.py",
        "        with accelerator.within(stream):",
        "        with accelerator.within(None):",
    ),
    Mutation(
        "message: the host waits before the buffer is handed on",
        "runtime/channel/message.py",
        "            accelerator.wait_for_current_stream(from_gpu)",
        "            pass",
    ),
    Mutation(
        "message: it asks where all tensors are",
        "runtime/channel/message.py",
        "if not tensor.is_cpu), None)",
        "if tensor.is_cuda), None)",
    ),
    Mutation(
        "pinned: the host waits before a buffer goes back",
        "runtime/channel/pinned.py",
        "        copied.synchronize()",
        "        pass",
    ),
    Mutation(
        "pinned: the event comes after the copies",
        "runtime/channel/pinned.py",
        f"{_COPIED}\n{_RECORDED}\n",
        f"{_RECORDED}\n{_COPIED}\n",
    ),
    Mutation("pinned: memory is pinned", "runtime/channel/pinned.py", "accelerator.pin(memory, device)", "None"),
    Mutation(
        "pinned: memory is unpinned",
        "runtime/channel/pinned.py",
        "            accelerator.unpin(address, self._device)",
        "            pass",
    ),
    Mutation(
        "pinned: buffers of gloo are pinned",
        "core/accelerator.py",
        "pin_memory=is_accelerator(device))",
        "pin_memory=False)",
    ),
    Mutation(
        "shared memory: the second part's event counts",
        "runtime/channel/shared_memory.py",
        "            message.copied = rest.copied\n",
    ),
    Mutation(
        "gloo: the second part's event counts",
        "runtime/channel/point_to_point.py",
        "            message.copied = rest.copied\n",
    ),
    Mutation(
        "shared memory: a buffer goes back after its copies",
        "runtime/channel/shared_memory.py",
        "        await_copies(message)\n",
    ),
    Mutation(
        "gloo: a buffer goes back after its copies",
        "runtime/channel/point_to_point.py",
        "        await_copies(message)\n",
    ),
    Mutation(
        "sums: the thread's stream waits until gradients are packed",
        "runtime/channel/gradient_reducer.py",
        "                self._stream.wait_event(packed)",
        "                pass",
    ),
    Mutation(
        "sums: the host waits until they are done",
        "runtime/channel/gradient_reducer.py",
        "                self._stream.synchronize()",
        "                pass",
    ),
    Mutation(
        "sums: they have a stream of their own",
        "runtime/channel/gradient_reducer.py",
        "accelerator.within(self._stream):",
        "accelerator.within(None):",
    ),
    Mutation(
        "times: the host waits for the end of an action",
        "runtime/stage/gpu_times.py",
        "                    end.synchronize()",
        "                    pass",
    ),
    Mutation(
        "times: the host asks whether an action has ended",
        "runtime/stage/gpu_times.py",
        "elif not end.query():",
        "elif False:",
    ),
    Mutation(
        "times: the clocks are compared when the GPU is there",
        "runtime/stage/gpu_times.py",
        "        self._zero.synchronize()\n",
    ),
    Mutation(
        "probe: the end of each action is waited for",
        "runtime/probe/timing.py",
        "                wait_for_all(timing.device)\n",
    ),
    Mutation(
        "routes: the end of a prediction is waited for",
        "inference/route_costs.py",
        "    wait_for_all(samples.device)\n",
    ),
    Mutation(
        "device: that of the stage is the current one",
        "runtime/device/devices.py",
        "        accelerator.use(device)",
        "        pass",
    ),
    Mutation(
        "device: memory goes back after a probe",
        "runtime/device/devices.py",
        "                accelerator.free_unused_memory()",
        "                pass",
    ),
    Mutation(
        "processes: memory goes back after a trial",
        "runtime/graph/processes.py",
        "        free_unused_memory()",
        "        pass",
    ),
    Mutation(
        "device: a seed is for one device",
        "core/accelerator.py",
        "    with torch.accelerator.device_index(device.index):\n        torch.get_device_module",
        "    if True:\n        torch.get_device_module",
    ),
    Mutation(
        "device: the peak begins anew", "core/accelerator.py", "    torch.accelerator.reset_peak_memory_stats(device)\n"
    ),
    Mutation(
        "device: the smallest GPU counts",
        "core/accelerator.py",
        "    return min(torch.accelerator.get_memory_info(index)[1] for index in range(count()))",
        "    return torch.accelerator.get_memory_info(0)[1]",
    ),
    Mutation(
        "nccl: the stream waits for what is received",
        "runtime/channel/nccl.py",
        "            self._group.recv([tensor], _SENDS, 0).wait()",
        "            self._group.recv([tensor], _SENDS, 0)",
    ),
    Mutation(
        "nccl: what is sent is kept until it has gone",
        "runtime/channel/nccl.py",
        "                self._under_way.append((self._post(sent), sent))",
        "                self._under_way.append((self._post(sent), sent[:0].clone()))",
    ),
    Mutation(
        "nccl: the current stream waits for a sum",
        "runtime/channel/all_reduce.py",
        "        wait_for(work, None if self._in_stream else times * self._timeout, edge)",
        "        pass",
    ),
    Mutation(
        "nccl: a sum within a computation does not hold the host",
        "runtime/channel/all_reduce.py",
        "        wait_for(work, None if self._in_stream else times * self._timeout, edge)",
        "        wait_for(work, times * self._timeout, edge)",
    ),
    Mutation(
        "nccl: sums are on the stage's device",
        "runtime/channel/all_reduce.py",
        "            self._works_on = accelerator.current()",
        "            self._works_on = torch.device(accelerator.kind(), 0)",
    ),
    Mutation(
        "nccl: tensors in another order",
        "runtime/channel/nccl.py",
        _EACH.format("tensors.values()"),
        _EACH.format("reversed(list(tensors.values()))"),
    ),
    Mutation("nccl: crossed ranks", "runtime/channel/nccl.py", "_SENDS, _RECEIVES = 0, 1", "_SENDS, _RECEIVES = 1, 0"),
    Mutation(
        "index: an edge on the first device",
        "runtime/channel/pinned.py",
        "tensor.to(device, non_blocking=True)",
        "tensor.to(device.type, non_blocking=True)",
    ),
    Mutation(
        "index: gradients on the first device",
        "runtime/channel/gradient_layout.py",
        "device=self.device)",
        "device=torch.device(self.device.type, 0))",
    ),
    Mutation(
        "index: a component on the first device",
        "runtime/stage/assemble.py",
        "    components = [network.component(index, device) for index in own]",
        "    components = [network.component(index, torch.device(device.type, 0)) for index in own]",
    ),
    Mutation(
        "index: inputs on the first device",
        "data/batches.py",
        "return tensor.to(device, dtype",
        "return tensor.to(device.type, dtype",
    ),
    Mutation(
        "index: received on the first device",
        "runtime/channel/nccl.py",
        "dtype=dtype, device=self._device)",
        "dtype=dtype, device=self._device.type)",
    ),
    Mutation(
        "index: the GPU that Ray reserved",
        "runtime/device/devices.py",
        "return torch.device(accelerator.kind(device), gpu)",
        "return torch.device(accelerator.kind(device), 0)",
    ),
)
FIRST = {
    "nccl": "test_nccl.py",
    "index": "test_nccl.py",
    "routes": "test_predictions.py",
}
"""The file of tests that most likely finds a mutation, by the first word of its name."""
FILES = ("test_waiting.py", "test_nccl.py", "test_second_device.py", "test_predictions.py", "test_processes.py")
WITHOUT_DEVICE = tuple(
    f"tests/{each}"
    for each in ("core/test_accelerator.py", "runtime/device/test_devices.py", "runtime/planner/test_memory.py")
)


def tried(mutation: Mutation) -> str:
    """The first test that fails with it; "" if none does."""
    with TemporaryDirectory() as folder:
        for name in ("alray", "tests"):
            shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        file = Path(folder, "alray", mutation.file)
        text = file.read_text(encoding="utf-8")
        if mutation.old not in text:
            raise SystemExit(f"{mutation.name}: {mutation.file} has changed, so change this list: {mutation.old!r}")
        file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
        first = FIRST.get(mutation.name.partition(":")[0], FILES[0])
        files = [f"tests/gpu/{each}" for each in (first, *(each for each in FILES if each != first))]
        return (
            _failing(folder, files[:1], simulated=True)
            or _failing(folder, WITHOUT_DEVICE, simulated=False)
            or _failing(folder, files[1:], simulated=True)
        )


def _failing(folder: str, tests: Sequence[str], *, simulated: bool) -> str:
    device = "simulated" if simulated else ""
    environment = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "ALRAY_TEST_DEVICE": device}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split()[1] if failed else "" if done.returncode == 0 else done.stdout[-300:]


def main(words: Sequence[str]) -> None:
    """Print a line for each mutation, and end with 1 if one of them lives."""
    chosen = [each for each in MUTATIONS if not words or any(word in each.name for word in words)]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = []
        for mutation, test in zip(chosen, threads.map(tried, chosen), strict=True):
            outcomes.append(test)
            sys.stdout.write(f"| {mutation.name} | {f'`{test}`' if test else 'NO TEST FAILS'} |\n")
            sys.stdout.flush()
    sys.exit(not all(outcomes))


if __name__ == "__main__":
    main(sys.argv[1:])
