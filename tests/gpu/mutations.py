"""Each wait, event, `record_stream`, synchronise and guard of the GPU path taken out, one at a time, and wrong indices
and crossed messages planted: does the test fail that is for it?

`python -m tests.gpu.mutations [WORD...]` makes a copy of the package for each mutation, changes the line there, and
runs the one test that the mutation names. With words it tries those whose name has one of them. Tests of tests/gpu run
on the simulated device.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "alray"
AT_ONCE = 2
MOST_S = 120.0
"""A test that takes longer hangs, and so it has found the mutation."""
FOUND = ("fails", "hangs", "crashes")
SAID = "said.txt"
FORKED = multiprocessing.get_context("forkserver")  # which loads torch once
FORKED.set_forkserver_preload(["torch", "torch.distributed", "pytest"])


@dataclass(frozen=True)
class Mutation:
    """A piece of text of a file of the package, what takes its place, and the test that finds it."""

    name: str
    file: str
    old: str
    new: str
    test: str


ACCELERATOR = "core/accelerator.py"
ASSEMBLE = "runtime/stage/assemble.py"
ALL_REDUCE = "runtime/channel/all_reduce.py"
DEVICES = "runtime/device/devices.py"
TRAINER = "runtime/ray_train/trainer.py"
INLINE = "runtime/graph/inline.py"
PROBE = "runtime/probe/measure.py"
PROBE_TIMES = "runtime/probe/timing.py"
GENERATORS = "core/randomness/generators.py"
EDGES = "runtime/rendezvous/edges.py"
FEED = "runtime/stage/assemble.py"
GLOO = "runtime/channel/point_to_point.py"
GROUPS = "runtime/rendezvous/groups.py"
MEMORY = "runtime/channel/shared_memory.py"
MEMORY_USED = "runtime/device/memory_used.py"
MESSAGE = "runtime/channel/message.py"
NCCL = "runtime/channel/nccl.py"
PINNED = "runtime/channel/pinned.py"
REDUCER = "runtime/channel/gradient_reducer.py"
REDUCTION = "runtime/stage/reduction.py"
TIMES = "runtime/stage/gpu_times.py"

FEEDS = "gpu/test_waiting.py::test_the_feed_copies_ahead_and_the_host_does_not_wait"
FEW_STREAMS = "gpu/test_waiting.py::test_a_run_takes_few_streams"
SHARES = "gpu/test_waiting.py::test_messages_through_shared_memory"
SENDS_BY_GLOO = "gpu/test_waiting.py::test_messages_through_gloo"
HANDS_ON = "gpu/test_waiting.py::test_a_message_is_handed_on_when_the_gpu_has_written_it"
GIVES_BACK = "gpu/test_waiting.py::test_buffers_go_back_when_the_gpu_has_read_both_parts[shared memory]"
GIVES_BACK_BY_GLOO = "gpu/test_waiting.py::test_buffers_go_back_when_the_gpu_has_read_both_parts[gloo]"
UNPINS = "gpu/test_waiting.py::test_memory_is_pinned_until_it_is_closed"
PINS = "gpu/test_waiting.py::test_buffers_of_messages_are_pinned"
AVERAGES = "gpu/test_waiting.py::test_gradients_are_averaged_beside_the_computation[none]"
AVERAGES_IN_HALF = "gpu/test_waiting.py::test_gradients_are_averaged_beside_the_computation[fp16]"
TIMES_PASS = "gpu/test_waiting.py::test_times_of_a_gpu_are_asked_for_when_they_are_known"
ALLOCATES = "gpu/test_waiting.py::test_memory_is_that_of_the_allocator"
PROBES = "gpu/test_waiting.py::test_the_probe_waits_for_what_it_times"
FORGETS = "gpu/test_waiting.py::test_a_process_that_is_kept_for_the_next_trial_gives_memory_back"
ENDS = "gpu/test_waiting.py::test_what_a_run_in_this_process_held_goes_back"
GOES_BACK = "gpu/test_waiting.py::test_what_a_measurement_in_this_process_held_goes_back"
NCCL_SENDS = "gpu/test_nccl.py::test_messages_from_gpu_to_gpu"
LOSES = "gpu/test_nccl.py::test_a_neighbour_that_is_lost"
NCCL_SUMS = "gpu/test_nccl.py::test_sums_and_rows_of_two_gpus[True]"
NCCL_SUMS_IN_STREAM = "gpu/test_nccl.py::test_sums_and_rows_of_two_gpus[False]"
NCCL_ORDER = "gpu/test_nccl.py::test_sums_within_computations_and_of_gradients_start_in_one_order"
SECOND = "gpu/test_second_device.py::test_a_run_on_the_second_gpu[stages]"
SECOND_REPLICAS = "gpu/test_second_device.py::test_a_run_on_the_second_gpu[replicas]"
OF_STAGE = "gpu/test_second_device.py::test_the_gpu_of_a_stage_has_its_streams_and_events"
RUNS = "gpu/test_one_process.py::test_a_stage_on_a_gpu_reads_pinned_memory_and_times_by_events"
PIPELINE = "gpu/test_processes.py::test_a_pipeline_of_backpropagation[nccl]"
NORMS = "gpu/test_processes.py::test_two_replicas[nccl-sync_batch_norm]"
OF_CPU = "core/test_accelerator.py::test_a_cpu_has_nothing_to_wait_for"
SEEDS = "core/test_accelerator.py::test_a_stage_seeds_its_gpu"
PINNED_ON = "core/test_accelerator.py::test_memory_is_pinned_and_unpinned_on_the_gpu_of_the_stage"
RESERVED = "runtime/device/test_devices.py::test_the_gpu_that_ray_reserved"
NOT_SEEN = "runtime/device/test_devices.py::test_a_gpu_that_is_not_seen"
KEPT_TO = "runtime/device/test_devices.py::test_a_process_keeps_to_the_gpu_that_ray_reserved_for_it"
OFFERED = "runtime/device/test_devices.py::test_the_accelerator_is_the_one_that_torch_offers"
WITHOUT = "runtime/device/test_devices.py::test_a_process_without_a_gpu_measures_on_its_cpu"
CURRENT = "runtime/device/test_devices.py::test_the_gpu_of_a_stage_is_the_current_one"
CONNECTS = (
    "runtime/rendezvous/test_rendezvous.py::test_edges_on_gpus_are_connected_in_one_order_before_the_first_mini_batch"
)
KINDS = "runtime/channel/test_edge_kind.py"

COPIED = (
    "    message.tensors = {name: tensor.to(device, non_blocking=True) for name, tensor in message.tensors.items()}\n"
)
RECORDED = "    message.copied = accelerator.recorded(device)\n"
PACKING = """        with torch.no_grad():
            for view, gradient in zip(self._views, gradients, strict=True):
                if gradient is None:
                    view.zero_()
                else:
                    torch.mul(gradient, 1.0 if weighted else weight, out=view)
        self._targets = gradients
"""
PACKED = "        packed = None if self._stream is None else accelerator.recorded(self._layout.device)\n"
CLOSES = "    def close(self) -> None:\n        self._headers.close()\n"

MUTATIONS = (
    Mutation("feed: the stream waits for the copy", FEED, "        current.wait_event(self.done)\n", "", FEEDS),
    Mutation("feed: record_stream", FEED, "tensor.record_stream(current)", "pass", FEEDS),
    Mutation(
        "feed: the event comes after the copy",
        FEED,
        "            return cls(batch, given(batch), accelerator.recorded(stream.device))",
        "            done = accelerator.recorded(stream.device)\n            return cls(batch, given(batch), done)",
        FEEDS,
    ),
    Mutation(
        "feed: the copy has a stream of its own", FEED, "accelerator.within(stream)", "accelerator.within(None)", FEEDS
    ),
    Mutation(
        "feed: a CPU has no stream",
        FEED,
        "    if stream is None:\n",
        "    if False:\n",
        "engine/test_ledger.py::test_the_weights_are_those_of_the_ledger[mono_forward]",
    ),
    Mutation(
        "feed: all mini-batches have one stream",
        ASSEMBLE,
        "network.dtype), fed_by)",
        "network.dtype), accelerator.own_stream(device))",
        FEW_STREAMS,
    ),
    Mutation(
        "feed: the host does not wait for samples",
        "data/batches.py",
        "tensor.dtype, non_blocking=True)",
        "tensor.dtype)",
        FEEDS,
    ),
    Mutation(
        "feed: the host does not wait for masks",
        "data/batches.py",
        "self.mask.to(device, non_blocking=True)",
        "self.mask.to(device)",
        FEEDS,
    ),
    Mutation("feed: samples are pinned", "data/batches.py", "self.samples.pin_memory()", "self.samples", FEEDS),
    Mutation("feed: labels are pinned", "data/batches.py", "self.labels.pin_memory()", "self.labels", FEEDS),
    Mutation("feed: masks are pinned", "data/batches.py", "else self.mask.pin_memory()", "else self.mask", FEEDS),
    Mutation("feed: the loader pins", ASSEMBLE, "pinned=is_accelerator(device)", "pinned=False", RUNS),
    Mutation(
        "message: the host waits before the buffer is handed on",
        MESSAGE,
        "accelerator.wait_for_current_stream(from_gpu)",
        "pass",
        HANDS_ON,
    ),
    Mutation(
        "message: it asks where all tensors are",
        MESSAGE,
        "if not tensor.is_cpu), None)",
        "if tensor.is_cuda), None)",
        HANDS_ON,
    ),
    Mutation(
        "message: the host does not wait for each tensor",
        MESSAGE,
        "view.copy_(tensors[name], non_blocking=True)",
        "view.copy_(tensors[name])",
        HANDS_ON,
    ),
    Mutation(
        "message: a message without tensors of a GPU waits for nothing",
        MESSAGE,
        "        if from_gpu is not None:\n",
        "        if True:\n",
        "runtime/channel/test_message.py::test_all_names_at_once_fit_the_header",
    ),
    Mutation("pinned: the host waits before a buffer goes back", PINNED, "copied.synchronize()", "pass", GIVES_BACK),
    Mutation(
        "pinned: the event comes after the copies",
        PINNED,
        COPIED + RECORDED,
        RECORDED + COPIED,
        GIVES_BACK,
    ),
    Mutation(
        "pinned: the host does not wait for what it received",
        PINNED,
        "tensor.to(device, non_blocking=True)",
        "tensor.to(device)",
        GIVES_BACK,
    ),
    Mutation(
        "pinned: nothing is copied on a CPU",
        PINNED,
        "    if not accelerator.is_accelerator(device):\n        return\n",
        "",
        "runtime/channel/test_shared_memory.py::test_a_message_in_two_parts_waits_once_and_asking_takes_nothing",
    ),
    Mutation(
        "pinned: a message that was not copied has no event",
        PINNED,
        "    if copied is not None:\n",
        "    if True:\n",
        "runtime/channel/test_shared_memory.py::test_a_message_in_two_parts_waits_once_and_asking_takes_nothing",
    ),
    Mutation("pinned: memory is pinned", PINNED, "accelerator.pin(memory, device)", "None", UNPINS),
    Mutation("pinned: memory is unpinned", PINNED, "accelerator.unpin(address, self._device)", "pass", UNPINS),
    Mutation(
        "pinned: memory is unpinned once",
        PINNED,
        "address, self._address = self._address, None",
        "address = self._address",
        UNPINS,
    ),
    Mutation(
        "pinned: a CPU has nothing to unpin",
        PINNED,
        "        if address is not None:\n",
        "        if True:\n",
        "runtime/channel/test_shared_memory.py::test_a_message_in_two_parts_waits_once_and_asking_takes_nothing",
    ),
    Mutation(
        "pinned: CUDA alone pins memory that torch did not allocate",
        ACCELERATOR,
        '    if device.type != "cuda":\n        return None\n',
        "",
        OF_CPU,
    ),
    Mutation(
        "pinned: on the GPU of the stage",
        ACCELERATOR,
        "        return None\n    with using(device), pinning():\n",
        "        return None\n    if True:\n",
        PINNED_ON,
    ),
    Mutation(
        "pinned: unpinned on the GPU of the stage",
        ACCELERATOR,
        "    with using(device):\n        torch.cuda.check_error",
        "    if True:\n        torch.cuda.check_error",
        PINNED_ON,
    ),
    Mutation(
        "pinned: an error of pinning is one",
        ACCELERATOR,
        "torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0))",
        "torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), memory.nbytes, 0)",
        PINNED_ON,
    ),
    Mutation(
        "pinned: an error of unpinning is one",
        ACCELERATOR,
        "torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(address))",
        "torch.cuda.cudart().cudaHostUnregister(address)",
        PINNED_ON,
    ),
    Mutation(
        "pinned: buffers of gloo are pinned",
        ACCELERATOR,
        "pin_memory=is_accelerator(device))",
        "pin_memory=False)",
        PINS,
    ),
    Mutation(
        "pinned: those of a CPU are not", ACCELERATOR, "pin_memory=is_accelerator(device))", "pin_memory=True)", OF_CPU
    ),
    Mutation(
        "pinned: what gloo sends from is pinned",
        GLOO,
        "line = _SEND_SLOTS, device, ",
        "line = _SEND_SLOTS, _CPU, ",
        SENDS_BY_GLOO,
    ),
    Mutation(
        "pinned: what gloo receives into is pinned",
        GLOO,
        "line = in_flight + 1, device, ",
        "line = in_flight + 1, _CPU, ",
        SENDS_BY_GLOO,
    ),
    Mutation(
        "shared memory: the second part's event counts",
        MEMORY,
        "            message.copied = rest.copied\n",
        "",
        GIVES_BACK,
    ),
    Mutation(
        "shared memory: a buffer goes back after its copies", MEMORY, "        await_copies(message)\n", "", GIVES_BACK
    ),
    Mutation(
        "shared memory: what came is copied to the GPU",
        MEMORY,
        "        to_device(message, self._device)\n",
        "",
        SHARES,
    ),
    Mutation(
        "shared memory: the second part is copied to the GPU",
        MEMORY,
        "            to_device(rest, self._device)\n",
        "",
        SHARES,
    ),
    Mutation(
        "gloo: the second part's event counts",
        GLOO,
        "            message.copied = rest.copied\n",
        "",
        GIVES_BACK_BY_GLOO,
    ),
    Mutation(
        "gloo: a buffer goes back after its copies", GLOO, "        await_copies(message)\n", "", GIVES_BACK_BY_GLOO
    ),
    Mutation(
        "gloo: what came is copied to the GPU", GLOO, "        to_device(message, self._device)\n", "", SENDS_BY_GLOO
    ),
    Mutation(
        "gloo: the second part is copied to the GPU",
        GLOO,
        "            to_device(rest, self._device)\n",
        "",
        SENDS_BY_GLOO,
    ),
    Mutation(
        "shared memory: the sender unpins",
        MEMORY,
        "            self._leave_ends_to_receiver()\n        self._pinned.close()\n",
        "            self._leave_ends_to_receiver()\n",
        SHARES,
    ),
    Mutation(
        "shared memory: the receiver unpins",
        MEMORY,
        "        self._pinned.close()\n        self._filled.close()\n",
        "        self._filled.close()\n",
        SHARES,
    ),
    Mutation(
        "sums: the thread's stream waits until gradients are packed",
        REDUCER,
        "self._stream.wait_event(packed)",
        "pass",
        AVERAGES,
    ),
    Mutation(
        "sums: the event comes after the packing",
        REDUCER,
        PACKING + PACKED,
        PACKED + PACKING,
        AVERAGES,
    ),
    Mutation(
        "sums: the host waits until they are done", REDUCER, "self._stream.synchronize()", "pass", AVERAGES_IN_HALF
    ),
    Mutation(
        "sums: they have a stream of their own",
        REDUCER,
        "accelerator.within(self._stream):",
        "accelerator.within(None):",
        AVERAGES,
    ),
    Mutation(
        "sums: all of a stage have one stream",
        REDUCER,
        "thread.stream if accelerator.is_accelerator(layout.device) else None",
        "accelerator.own_stream(layout.device)",
        FEW_STREAMS,
    ),
    Mutation(
        "sums: a CPU has no stream",
        REDUCER,
        "            if self._stream is not None and packed is not None:\n",
        "            if True:\n",
        "runtime/channel/test_gradient_reducer.py::test_a_gradient_that_is_missing_counts_as_zeros",
    ),
    Mutation(
        "sums: a CPU has no stream to wait for",
        REDUCER,
        "            if self._stream is not None:\n                self._stream.sync",
        "            if True:\n                self._stream.sync",
        "runtime/channel/test_gradient_reducer.py::test_a_gradient_that_is_missing_counts_as_zeros",
    ),
    Mutation(
        "sums: a CPU has no event",
        REDUCER,
        "packed = None if self._stream is None else accelerator",
        "packed = accelerator",
        "runtime/channel/test_gradient_reducer.py::test_a_gradient_that_is_missing_counts_as_zeros",
    ),
    Mutation(
        "sums: those of gloo are in host memory",
        ALL_REDUCE,
        "        if tensor.device == self._works_on:\n",
        "        if True:\n",
        AVERAGES,
    ),
    Mutation(
        "sums: gathered where the group works",
        ALL_REDUCE,
        "self.size, own.numel()), device=self._works_on)",
        "self.size, own.numel()))",
        "gpu/test_waiting.py::test_rows_of_a_gpu_over_gloo",
    ),
    Mutation(
        "sums: gathered for where they came from",
        ALL_REDUCE,
        "return rows.to(own.device)",
        "return rows",
        "gpu/test_waiting.py::test_rows_of_a_gpu_over_gloo",
    ),
    Mutation(
        "sums: gloo holds the host",
        ALL_REDUCE,
        "not holds_host and accelerator.is_accelerator(self._works_on)",
        "not holds_host",
        "runtime/channel/test_all_reduce.py::test_over_gloo_the_time_limit_holds_within_a_computation",
    ),
    Mutation(
        "sums: rows of a stage are in host memory",
        "runtime/stage/reduction.py",
        'own.shape[1]), device="cpu")',
        "own.shape[1]))",
        "gpu/test_waiting.py::test_rows_are_gathered_from_a_gpu",
    ),
    Mutation("times: the host waits for the end of an action", TIMES, "end.synchronize()", "pass", TIMES_PASS),
    Mutation(
        "times: the host asks whether an action has ended", TIMES, "elif not end.query():", "elif False:", TIMES_PASS
    ),
    Mutation(
        "times: the clocks are compared when the GPU is there",
        TIMES,
        "        self._zero.synchronize()\n",
        "",
        TIMES_PASS,
    ),
    Mutation(
        "times: the clocks are compared again", TIMES, "        if wait:\n            self._anchor()\n", "", TIMES_PASS
    ),
    Mutation(
        "times: while the host waits, it computes nothing",
        TIMES,
        "self._open = self.event() if computes else None",
        "self._open = self.event()",
        TIMES_PASS,
    ),
    Mutation(
        "times: those of a stage are its GPU's",
        ASSEMBLE,
        "if is_accelerator(device) else None,",
        "if False else None,",
        RUNS,
    ),
    Mutation(
        "times: a CPU has none",
        ASSEMBLE,
        "if is_accelerator(device) else None,",
        "if True else None,",
        "engine/test_ledger.py::test_the_weights_are_those_of_the_ledger[mono_forward]",
    ),
    Mutation(
        "times: events of a stage have times",
        ASSEMBLE,
        "partial(recorded, device, timed=True)",
        "partial(recorded, device)",
        RUNS,
    ),
    Mutation("times: an event is recorded", ACCELERATOR, "    event.record(current_stream(device))\n", "", FEEDS),
    Mutation(
        "times: an event has a time where it is asked for",
        ACCELERATOR,
        "enable_timing=timed)",
        "enable_timing=False)",
        TIMES_PASS,
    ),
    Mutation(
        "probe: the end of each action is waited for",
        PROBE_TIMES,
        "                wait_for_all(timing.device)\n",
        "",
        PROBES,
    ),
    Mutation(
        "probe: the end of each round is waited for",
        PROBE_TIMES,
        "        wait_for_all(timing.device)\n        rounds",
        "        rounds",
        PROBES,
    ),
    Mutation(
        "probe: rounds of a GPU are timed without waits, too",
        PROBE_TIMES,
        "        if is_accelerator(timing.device):\n",
        "        if False:\n",
        PROBES,
    ),
    Mutation(
        "probe: a CPU has no rounds without waits",
        PROBE_TIMES,
        "        if is_accelerator(timing.device):\n",
        "        if True:\n",
        PROBES,
    ),
    Mutation(
        "device: a CPU has nothing to wait for",
        ACCELERATOR,
        "    if is_accelerator(device):\n        torch.accelerator.synchronize(device)",
        "    if True:\n        torch.accelerator.synchronize(device)",
        OF_CPU,
    ),
    Mutation(
        "device: waiting for all",
        ACCELERATOR,
        "        torch.accelerator.synchronize(device)\n",
        "        pass\n",
        PROBES,
    ),
    Mutation(
        "device: waiting for the current stream",
        ACCELERATOR,
        "    current_stream(device).synchronize()\n",
        "",
        HANDS_ON,
    ),
    Mutation("device: that of the stage is the current one", DEVICES, "accelerator.use(device)", "pass", CURRENT),
    Mutation(
        "device: a CPU becomes no current device",
        DEVICES,
        "    if accelerator.is_accelerator(device):\n        accelerator.use(device)",
        "    if True:\n        accelerator.use(device)",
        CURRENT,
    ),
    Mutation(
        "device: that of the program is the current one again",
        DEVICES,
        "limits_restored(), accelerator.using(device):",
        "limits_restored():",
        "gpu/test_second_device.py::test_the_device_of_a_program_is_the_current_one_again",
    ),
    Mutation(
        "device: a CPU and `meta` are none", ACCELERATOR, '_WITHOUT = ("cpu", "meta")', '_WITHOUT = ("cpu",)', OF_CPU
    ),
    Mutation(
        "device: a CPU has no stream",
        ACCELERATOR,
        "return torch.Stream(device) if is_accelerator(device) else None",
        "return torch.Stream(device)",
        OF_CPU,
    ),
    Mutation(
        "device: a CPU has no random numbers of a GPU",
        ACCELERATOR,
        "    if not is_accelerator(device):\n        return torch.random.fork_rng(devices=[])\n",
        "",
        OF_CPU,
    ),
    Mutation(
        "device: a seed is for one device",
        ACCELERATOR,
        "    with using(device):\n        torch.get_device_module",
        "    if True:\n        torch.get_device_module",
        "core/test_accelerator.py::test_one_gpu_is_seeded",
    ),
    Mutation(
        "device: a stage seeds its GPU",
        GENERATORS,
        "        accelerator.seed(device, value)\n",
        "        pass\n",
        SEEDS,
    ),
    Mutation(
        "device: its random numbers are put back",
        ACCELERATOR,
        "fork_rng(devices=[device], device_type=device.type)",
        "fork_rng(devices=[])",
        "core/test_accelerator.py::test_the_random_numbers_of_the_gpu_are_put_back",
    ),
    Mutation(
        "device: it is the kind that was asked for",
        ACCELERATOR,
        "None if offered is None or offered.type != kind(wanted) else",
        "None if offered is None else",
        OFFERED,
    ),
    Mutation(
        "device: torch can use it",
        ACCELERATOR,
        "current_accelerator(check_available=True)",
        "current_accelerator()",
        WITHOUT,
    ),
    Mutation(
        "device: one that is not there is refused",
        DEVICES,
        "    if accelerator.available(device) is None:\n",
        "    if False:\n",
        OFFERED,
    ),
    Mutation(
        "device: a process without one measures on its CPU",
        DEVICES,
        "_given == () or accelerator.available(device) is None",
        "_given == ()",
        WITHOUT,
    ),
    Mutation(
        "device: a process that was given none measures on its CPU",
        DEVICES,
        "_given == () or accelerator.available(device) is None",
        "accelerator.available(device) is None",
        KEPT_TO,
    ),
    Mutation(
        "device: that of a trial in one process is the one that Ray reserved",
        DEVICES,
        "gpu = 0 if _given is None else number_of_given(_given, device)",
        "gpu = 0",
        KEPT_TO,
    ),
    Mutation(
        "device: one that Ray did not reserve is refused",
        DEVICES,
        "    if not given or given[0] not in seen:\n",
        "    if False:\n",
        NOT_SEEN,
    ),
    Mutation(
        "device: the model of the GPU",
        DEVICES,
        "    if accelerator.is_accelerator(device):\n        return accelerator.name(device)\n",
        "",
        OF_STAGE,
    ),
    Mutation(
        "device: bfloat16 is asked for",
        "models/precision.py",
        "    if lowered and not",
        "    if False and not",
        "models/test_precision.py::test_a_gpu_that_does_not_know_bfloat16_is_named_before_a_block_is",
    ),
    Mutation(
        "memory: it goes back after a probe",
        DEVICES,
        "accelerator.free_unused_memory(after_failure=failed)",
        "pass",
        GOES_BACK,
    ),
    Mutation(
        "memory: garbage goes before", DEVICES, "                gc.collect()  #", "                pass  #", GOES_BACK
    ),
    Mutation(
        "memory: a run on a CPU leaves a GPU alone",
        DEVICES,
        "            if accelerator.is_accelerator(device) and not keeps_memory:\n                gc",
        "            if not keeps_memory:\n                gc",
        "runtime/device/test_devices.py::test_what_a_probe_held_of_a_gpu_goes_back_to_it",
    ),
    Mutation(
        "memory: it goes back after a trial",
        "runtime/graph/processes.py",
        "free_unused_memory()  #",
        "pass  #",
        FORGETS,
    ),
    Mutation(
        "memory: garbage goes before, after a trial",
        "runtime/graph/processes.py",
        "        gc.unfreeze()\n        gc.collect()\n",
        "        gc.unfreeze()\n",
        FORGETS,
    ),
    Mutation(
        "inline: the frames of an error go back",
        INLINE,
        "clear_frames(outcome.exception())",
        "pass",
        "gpu/test_waiting.py::test_what_a_run_that_failed_held_goes_back[True]",
    ),
    Mutation(
        "inline: so do those of the error that it came from",
        "runtime/device/out_of_memory.py",
        "            left += [each.__cause__, each.__context__]\n",
        "",
        "gpu/test_waiting.py::test_what_a_run_that_failed_held_goes_back[True]",
    ),
    Mutation(
        "memory: stages go after a run in this process",
        INLINE,
        "        self._loops = []  #",
        "        #",
        ENDS,
    ),
    Mutation(
        "memory: garbage goes before, after a run in this process", INLINE, "            gc.collect()\n", "", ENDS
    ),
    Mutation(
        "memory: it goes back after a run in this process",
        INLINE,
        "accelerator.free_unused_memory(after_failure=not whole)  # another process may",
        "pass  # another process may",
        ENDS,
    ),
    Mutation(
        "memory: frozen objects are garbage, too", "runtime/graph/processes.py", "        gc.unfreeze()\n", "", FORGETS
    ),
    Mutation(
        "memory: the peak begins anew",
        ACCELERATOR,
        "    torch.accelerator.reset_peak_memory_stats(device)\n",
        "",
        ALLOCATES,
    ),
    Mutation(
        "memory: that of the GPU before a stage",
        MEMORY_USED,
        "    if accelerator.is_accelerator(device):\n        return accelerator.start",
        "    if False:\n        return accelerator.start",
        ALLOCATES,
    ),
    Mutation(
        "memory: that of the GPU of a stage",
        MEMORY_USED,
        "    if accelerator.is_accelerator(device):\n        return max",
        "    if False:\n        return max",
        ALLOCATES,
    ),
    Mutation(
        "memory: cuBLAS has its workspace before",
        MEMORY_USED,
        "    run_first_kernels(device)\n",
        "    run_first_kernels()\n",
        "gpu/test_waiting.py::test_first_kernels_have_run_before_memory_is_measured",
    ),
    Mutation(
        "memory: the smallest GPU counts",
        ACCELERATOR,
        "return min(map(_memory_bytes, range(count())))",
        "return _memory_bytes(0)",
        "runtime/planner/test_memory_limits.py::test_the_part_of_a_gpu_that_a_stage_has",
    ),
    Mutation(
        "memory: without a GPU it is counted for a CPU",
        "runtime/probe/component_memory.py",
        "at = device if not is_accelerator(device) or available(device.type) is not None else _CPU",
        "at = device",
        "runtime/probe/test_component_memory.py::test_without_a_gpu_its_memory_is_counted_as_that_of_a_cpu",
    ),
    Mutation(
        "memory: torch's error says that it is out",
        "runtime/device/out_of_memory.py",
        "MemoryError | torch.OutOfMemoryError",
        "MemoryError",
        "runtime/device/test_out_of_memory.py::test_what_is_out_of_memory",
    ),
    Mutation(
        "nccl: an error of the own GPU is no lost neighbour",
        GLOO,
        "    if own:\n",
        "    if False:\n",
        "runtime/channel/test_point_to_point.py::test_an_error_of_the_own_gpu_is_no_lost_neighbour",
    ),
    Mutation(
        "nccl: the stream waits for what is received",
        NCCL,
        "self._group.recv([tensor], _SENDS, 0).wait()",
        "self._group.recv([tensor], _SENDS, 0)",
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: what is sent is kept until it has gone",
        NCCL,
        "self._under_way.append((self._post(sent), sent))",
        "self._under_way.append((self._post(sent), sent[:0].clone()))",
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: only what has gone is given up",
        NCCL,
        "while self._under_way and self._under_way[0][0].is_completed():",
        "while self._under_way:",
        NCCL_SENDS,
    ),
    Mutation("nccl: the first send is waited for", NCCL, "self._post(sent).wait()", "self._post(sent)", NCCL_SENDS),
    Mutation(
        "nccl: at the end all sends are waited for",
        NCCL,
        "        while self._under_way:\n            wait_for",
        "        while False:\n            wait_for",
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: what is sent is contiguous",
        NCCL,
        "tensor.to(self._device).contiguous()",
        "tensor.to(self._device)",
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: what is sent is on the GPU",
        NCCL,
        "tensor.to(self._device).contiguous()",
        "tensor.contiguous()",
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: nothing is sent for no elements",
        NCCL,
        "            if tensor.numel() > 0:\n                sent",
        "            if True:\n                sent",
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: nothing is received for no elements",
        NCCL,
        "            if shape.numel() > 0:\n",
        "            if True:\n",
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: a sender that is closed leaves the communicator",
        NCCL,
        "            self._under_way.popleft()\n\n" + CLOSES + "        self._group.abort()\n",
        "            self._under_way.popleft()\n\n" + CLOSES,
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: a receiver that is closed leaves the communicator",
        NCCL,
        "        return self._headers.waiting()\n\n" + CLOSES + "        self._group.abort()\n",
        "        return self._headers.waiting()\n\n" + CLOSES,
        NCCL_SENDS,
    ),
    Mutation(
        "nccl: the current stream waits for a sum",
        ALL_REDUCE,
        "        wait_for(work, None if self._in_stream else times * self._timeout, edge)",
        "        pass",
        NCCL_SUMS,
    ),
    Mutation(
        "nccl: a sum within a computation does not hold the host",
        ALL_REDUCE,
        "None if self._in_stream else times",
        "times",
        NCCL_SUMS_IN_STREAM,
    ),
    Mutation("nccl: other sums hold the host", ALL_REDUCE, "not holds_host and accelerator", "accelerator", NCCL_SUMS),
    Mutation(
        "nccl: sums within computations hold no host in a run",
        GROUPS,
        "timeout_s=timeout_s, holds_host=False)",
        "timeout_s=timeout_s)",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation(
        "nccl: sums of two threads start in one order",
        REDUCTION,
        "        if not all(each.done for each in self._exchanges()):\n",
        "        if False:\n",
        NCCL_ORDER,
    ),
    Mutation(
        "nccl: a gather starts in order, too",
        REDUCTION,
        "        self._settle()\n        return self._sums.gather(own)",
        "        return self._sums.gather(own)",
        NCCL_ORDER,
    ),
    Mutation(
        "nccl: a sum starts in order",
        REDUCTION,
        "        self._settle()\n        self._sums.sum(tensor)",
        "        self._sums.sum(tensor)",
        NCCL_ORDER,
    ),
    Mutation(
        "nccl: the order is kept where sums are NCCL's",
        REDUCTION,
        'if self._group.name() == "nccl" else sums',
        "if False else sums",
        NCCL_ORDER,
    ),
    Mutation(
        "nccl: norms of a run are in order", ASSEMBLE, "replication.in_order(replicas.norms)", "replicas.norms", NORMS
    ),
    Mutation(
        "nccl: averages begin after the backward pass where norms are summed within it",
        REDUCTION,
        'spec.replicas.sync_batch_norm and spec.trains_unknown_code and group.name() == "nccl"',
        "False",
        "gpu/test_processes.py::test_sums_of_norms_beside_gradients_that_one_replica_has",
    ),
    Mutation(
        "nccl: stages that all wait do not wait for ever",
        "runtime/runner/driver.py",
        "    if under_way and still_s > limit_s:",
        "    if False:",
        "runtime/runner/test_policy.py::test_stages_that_all_wait_for_each_other_do_not_wait_for_ever",
    ),
    Mutation(
        "disturbance: a replica is slowed by all that its GPU computes",
        "runtime/stage/stage.py",
        "clock.wait_for_gpu()  # a slower one would take longer for all of it",
        "pass",
        "runtime/stage/test_disturbance.py::test_what_a_gpu_has_still_to_compute_is_slowed_too",
    ),
    Mutation(
        "nccl: sums are on a GPU where they are NCCL's",
        ALL_REDUCE,
        '        if group.name() == "nccl":\n',
        "        if False:\n",
        NCCL_SUMS,
    ),
    Mutation(
        "nccl: two processes on one GPU",
        "runtime/channel/edge_kind.py",
        "and other.gpu is not None and one != other:",
        "and other.gpu is not None:",
        f"{KINDS}::test_each_edge_has_a_kind_of_its_own",
    ),
    Mutation(
        "nccl: an edge to a CPU",
        "runtime/channel/edge_kind.py",
        "if one.gpu is not None and other.gpu is not None and",
        "if one.gpu is not None and",
        f"{KINDS}::test_each_edge_has_a_kind_of_its_own",
    ),
    Mutation(
        "nccl: replicas on one GPU",
        "runtime/channel/edge_kind.py",
        "alone = len(set(locations)) == len(locations) and all(",
        "alone = all(",
        f"{KINDS}::test_replicas_with_a_gpu_each_sum_over_nccl",
    ),
    Mutation(
        "nccl: replicas on a CPU",
        "runtime/channel/edge_kind.py",
        " and all(location.gpu is not None for location in locations)",
        "",
        f"{KINDS}::test_replicas_with_a_gpu_each_sum_over_nccl",
    ),
    Mutation(
        "nccl: replicas are connected before the first mini-batch",
        GROUPS,
        "        make_all_reduce(_BACKEND, joined, timeout_s=timeout_s).sum(torch.zeros(1, device=current()))\n",
        "",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation("nccl: edges are connected before the first mini-batch", EDGES, "    ends.connect()\n", "", CONNECTS),
    Mutation(
        "nccl: edges are connected in one order",
        EDGES,
        "for key in sorted(self._on_gpus):",
        "for key in self._on_gpus:",
        CONNECTS,
    ),
    Mutation(
        "nccl: a stage's process is prepared for it",
        "runtime/graph/processes.py",
        "        prepare_for_nccl()\n",
        "",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation(
        "nccl: it is prepared before torch counts the GPUs",
        "runtime/graph/processes.py",
        "        prepare_for_nccl()\n        run_first_kernels(with_given_gradient=is_pipeline)\n",
        "        run_first_kernels(with_given_gradient=is_pipeline)\n        prepare_for_nccl()\n",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation(
        "nccl: torch's watchdog ends no process",
        GROUPS,
        "        os.environ.setdefault(name, value)\n",
        "        pass\n",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation(
        "nccl: data of CUDA's modules are loaded with them",
        GROUPS,
        '    "CUDA_MODULE_DATA_LOADING": "EAGER",\n',
        "",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation(
        "nccl: a worker of Ray Train is prepared for it",
        TRAINER,
        '        if backend_config.backend == "nccl":\n',
        "        if False:\n",
        "runtime/ray_train/test_workers.py",
    ),
    Mutation(
        "nccl: a worker of Ray Train on gloo is not",
        TRAINER,
        '        if backend_config.backend == "nccl":\n',
        "        if True:\n",
        "runtime/ray_train/test_workers.py",
    ),
    Mutation(
        "data: the thread that pins may miss a worker",
        "data/batches.py",
        '("DataLoader worker (pid", "Pin memory thread exited unexpectedly")',
        '("DataLoader worker (pid",)',
        "data/test_batches.py::test_a_worker_that_is_gone_may_end_the_thread_that_pins",
    ),
    Mutation(
        "pinned: a full host is not a full GPU",
        ACCELERATOR,
        'if "out of memory" not in str(error):',
        "if True:",
        "core/test_accelerator.py::test_memory_of_the_host_that_cannot_be_pinned_is_none_of_the_gpu",
    ),
    Mutation(
        "memory: a full GPU is told by every command",
        "core/system_errors.py",
        "if of_torch and of_gpu and any(tell in text for tell in NO_GPU_MEMORY):",
        "if False:",
        "cli/test_system_faults.py::test_what_ran_out_is_told",
    ),
    Mutation(
        "bits: an operation without a deterministic algorithm is no fault of its code",
        DEVICES,
        "    if _NO_ALGORITHM not in str(fault):\n",
        "    if True:\n",
        "engine/test_own_code.py::test_an_operation_without_a_deterministic_algorithm_is_no_fault_of_its_code",
    ),
    Mutation(
        "device: a run in bfloat16 is evaluated where it is known",
        "inference/network.py",
        "            require_precision(",
        "            print(",
        "gpu/test_predictions.py::test_a_gpu_that_does_not_know_bfloat16_evaluates_no_run_in_it",
    ),
    Mutation(
        "device: a thread without one lets go of a run on the GPU of its stages",
        INLINE,
        "with accelerator.using(self._device):",
        'with accelerator.using(torch.device("cpu")):',
        SECOND,
    ),
    Mutation(
        "device: the thread that answers polls has that of its stage",
        "runtime/graph/actor.py",
        "                accelerator.use(device)  # polls",
        "                pass  # polls",
        "gpu/test_processes.py::test_two_stages[streamed-nccl]",
    ),
    Mutation(
        "replicas: gradients are summed on the GPU of the stage",
        REDUCTION,
        "CommunicationThread(device)",
        "CommunicationThread()",
        "gpu/test_second_device.py::test_a_run_on_the_second_gpu",
    ),
    Mutation(
        "nccl: workers of Ray Train on slices of GPUs have gloo",
        TRAINER,
        'if backend == "nccl" and not all(',
        "if False and not all(",
        "runtime/ray_train/test_workers.py",
    ),
    Mutation(
        "nccl: workers of Ray Train join on the GPUs that they compute on",
        TRAINER,
        "gpu=number_of_given(given_gpus(), AUTO)",
        "gpu=0",
        "runtime/ray_train/test_workers.py",
    ),
    Mutation(
        "nccl: each stream has a queue",
        DEVICES,
        'os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")\n',
        "",
        "runtime/device/test_devices.py::test_a_process_gives_each_stream_of_its_gpu_a_queue",
    ),
    Mutation(
        "nccl: headers that are sent stay in host memory",
        EDGES,
        "HEADER_CAPACITY if rest_bytes else 0, _HOST\n        sender: Sender",
        "HEADER_CAPACITY if rest_bytes else 0, device\n        sender: Sender",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation(
        "nccl: headers that are received stay in host memory",
        EDGES,
        "HEADER_CAPACITY if rest_bytes else 0, _HOST\n        receiver: Receiver",
        "HEADER_CAPACITY if rest_bytes else 0, device\n        receiver: Receiver",
        "runtime/rendezvous/test_rendezvous.py",
    ),
    Mutation(
        "nccl: a sender names the neighbour that is lost",
        NCCL,
        "            return self._group.send([tensor], _RECEIVES, 0)\n        except RuntimeError as",
        "            return self._group.send([tensor], _RECEIVES, 0)\n        except LookupError as",
        LOSES,
    ),
    Mutation(
        "nccl: a receiver names the neighbour that is lost",
        NCCL,
        "the current stream waits, not the host\n        except RuntimeError as",
        "the current stream waits, not the host\n        except LookupError as",
        LOSES,
    ),
    Mutation("crossed: ranks of an edge", NCCL, "_SENDS, _RECEIVES = 0, 1", "_SENDS, _RECEIVES = 1, 0", NCCL_SENDS),
    Mutation(
        "crossed: tensors in another order",
        NCCL,
        "        for tensor in tensors.values():\n            if tensor.numel()",
        "        for tensor in reversed(list(tensors.values())):\n            if tensor.numel()",
        NCCL_SENDS,
    ),
    Mutation(
        "crossed: a header's second layout first",
        NCCL,
        "header.tensors = {_LAYOUT: layout, _REST: self._layout(rest)}",
        "header.tensors = {_LAYOUT: self._layout(rest), _REST: layout}",
        NCCL_SENDS,
    ),
    Mutation(
        "crossed: the second part has the tag of the first",
        GLOO,
        "self._rest = _Incoming(edge, peer, tag + _REST,",
        "self._rest = _Incoming(edge, peer, tag,",
        SENDS_BY_GLOO,
    ),
    Mutation(
        "crossed: both ends of a pair send",
        EDGES,
        "group=self._pair(edge, tag, 1)",
        "group=self._pair(edge, tag, 0)",
        PIPELINE,
    ),
    Mutation(
        "crossed: up and down",
        EDGES,
        "ends.sender(target, _TAGS[stream],",
        'ends.sender(target, _TAGS["down"],',
        PIPELINE,
    ),
    Mutation(
        "crossed: norms and gradients have one name",
        GROUPS,
        'replica_group(store, assignment, timeout_s, "norms", kind=kind)',
        "replica_group(store, assignment, timeout_s, kind=kind)",
        NORMS,
    ),
    Mutation(
        "index: an edge on the first device",
        PINNED,
        "tensor.to(device, non_blocking=True)",
        "tensor.to(torch.device(device.type, 0), non_blocking=True)",
        "gpu/test_second_device.py::test_messages_to_the_second_gpu",
    ),
    Mutation(
        "index: gradients on the first device",
        "runtime/channel/gradient_layout.py",
        "device=self.device)",
        "device=torch.device(self.device.type, 0))",
        SECOND_REPLICAS,
    ),
    Mutation(
        "index: a component on the first device",
        ASSEMBLE,
        "[network.component(index, device) for index in own]",
        "[network.component(index, torch.device(device.type, 0)) for index in own]",
        SECOND,
    ),
    Mutation(
        "index: inputs on the first device",
        "data/batches.py",
        "return tensor.to(device, dtype",
        "return tensor.to(torch.device(device.type, 0), dtype",
        SECOND,
    ),
    Mutation(
        "index: received on the first device",
        NCCL,
        "dtype=dtype, device=self._device)",
        "dtype=dtype, device=torch.device(self._device.type, 0))",
        NCCL_SENDS,
    ),
    Mutation(
        "index: connected on the first device",
        NCCL,
        "        self._take(torch.zeros(1, device=self._device))",
        "        self._take(torch.zeros(1, device=torch.device(self._device.type, 0)))",
        NCCL_SENDS,
    ),
    Mutation(
        "index: sums on the first device",
        ALL_REDUCE,
        "self._works_on = accelerator.current()",
        "self._works_on = torch.device(accelerator.kind(), 0)",
        NCCL_SUMS,
    ),
    Mutation(
        "index: the current device is the first",
        ACCELERATOR,
        "return torch.device(kind(), torch.accelerator.current_device_index())",
        "return torch.device(kind(), 0)",
        OF_STAGE,
    ),
    Mutation(
        "index: the event is one of the first device",
        ACCELERATOR,
        "event = torch.Event(device, enable",
        "event = torch.Event(torch.device(device.type, 0), enable",
        SECOND,
    ),
    Mutation(
        "index: the stream is one of the first device",
        ACCELERATOR,
        "return torch.Stream(device) if",
        "return torch.Stream(torch.device(device.type, 0)) if",
        OF_STAGE,
    ),
    Mutation(
        "index: the current stream is one of the first device",
        ACCELERATOR,
        "return torch.accelerator.current_stream(device)",
        "return torch.accelerator.current_stream(torch.device(device.type, 0))",
        SECOND,
    ),
    Mutation(
        "index: the peak is that of the first device",
        ACCELERATOR,
        "return torch.accelerator.max_memory_allocated(device)",
        "return torch.accelerator.max_memory_allocated(0)",
        "gpu/test_second_device.py::test_memory_is_that_of_the_second_gpu",
    ),
    Mutation(
        "index: memory is that of the first device",
        ACCELERATOR,
        "return torch.accelerator.memory_allocated(device)",
        "return torch.accelerator.memory_allocated(0)",
        "gpu/test_second_device.py::test_memory_is_that_of_the_second_gpu",
    ),
    Mutation(
        "index: the GPU that Ray reserved",
        DEVICES,
        "return torch.device(accelerator.kind(device), gpu)",
        "return torch.device(accelerator.kind(device), 0)",
        OF_STAGE,
    ),
    Mutation(
        "index: its number among those that are seen", DEVICES, "return seen.index(given[0])", "return 0", RESERVED
    ),
    Mutation(
        "index: edges of a stage on the first device",
        EDGES,
        "            group=self._pair(edge, tag, 0),\n            device=self.device,",
        "            group=self._pair(edge, tag, 0),\n            device=torch.device(self.device.type, 0),",
        PIPELINE,
    ),
)


def tried(mutation: Mutation) -> str:
    """How its test ended with it, as `ending` says."""
    with TemporaryDirectory() as folder:
        copy_to(Path(folder))
        file = Path(folder, "alray", mutation.file)
        file.write_text(changed(mutation, file.read_text(encoding="utf-8")), encoding="utf-8")
        return ending(folder, [mutation.test])


def changed(mutation: Mutation, text: str) -> str:
    """The file with the mutation. Ends this program where the file has changed, so that the list must follow."""
    if text.count(mutation.old) != 1:
        raise SystemExit(
            f"{mutation.name}: {mutation.file} has this {text.count(mutation.old)} times: {mutation.old!r}"
        )
    text = text.replace(mutation.old, mutation.new)
    compile(text, mutation.file, "exec")  # what cannot be imported fails every test
    return text


def copy_to(folder: Path) -> None:
    for name in ("alray", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)


def ending(folder: str, tests: Sequence[str]) -> str:
    """How these tests end, all in tests/gpu or none, with the package of a folder: `passes`, or as `FOUND` says. A test
    also fails that ends well and leaves a fault of the simulated device."""
    process = FORKED.Process(target=run_tests, args=(folder, tests))
    process.start()
    process.join(MOST_S * len(tests))
    if process.is_alive():
        process.kill()
        return "hangs"
    said = Path(folder, SAID).read_text(encoding="utf-8")
    if process.exitcode is not None and process.exitcode < 0:
        return "crashes"  # as where gloo is given memory of a device
    if process.exitcode == 0:
        return "passes" if " passed" in said else "is skipped"
    if any(line.startswith(("FAILED", "ERROR")) and "::" in line for line in said.splitlines()):
        return "fails"
    return f"cannot run: {said[-1000:]}"


def run_tests(folder: str, tests: Sequence[str]) -> None:
    """In a process of its own, which has loaded torch and nothing of alray: run tests, and write what pytest says."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # of this checkout
    os.chdir(folder)
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = folder
    os.environ["ALRAY_TEST_DEVICE"] = "simulated" if tests[0].startswith("gpu/") else ""
    with Path(SAID).open("w", encoding="utf-8") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    import pytest

    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *(f"tests/{test}" for test in tests)])
    from alray import __file__ as tested

    assert tested is not None and Path(tested).is_relative_to(folder), tested
    sys.stdout.flush()
    os._exit(code)


def main(words: Sequence[str]) -> None:
    """Print a line for each mutation, and end with 1 if one of them lives."""
    os.environ["OMP_NUM_THREADS"] = "1"
    chosen = [each for each in MUTATIONS if not words or any(word in each.name for word in words)]
    for mutation in chosen:
        changed(mutation, (PACKAGE / mutation.file).read_text(encoding="utf-8"))
    tests = sorted({mutation.test for mutation in chosen})
    with TemporaryDirectory() as folder:
        copy_to(Path(folder))
        for alone in (True, False):
            own = [test for test in tests if test.startswith("gpu/") == alone]
            if own and (how := ending(folder, own)) != "passes":
                raise SystemExit(f"without a mutation, one of these {how}: {own}")
    found: Counter[str] = Counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for mutation, how in zip(chosen, threads.map(tried, chosen), strict=True):
            found[how if how in FOUND else "lives"] += 1
            sys.stdout.write(f"| {mutation.name} | `{mutation.test}` | {how} |\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(found)} of {len(chosen)}\n")
    sys.exit(bool(found["lives"]))


if __name__ == "__main__":
    main(sys.argv[1:])
