"""docs/gpu_measured.md: what alray predicts for one GPU, and what it measures there.

    python -m benchmarks.gpu              about eight minutes, on a machine with a GPU
    python -m benchmarks.gpu resnet gpt   these networks alone

Each network trains in one process, and as two stages that share the GPU. A run predicts its step and its memory before
it trains, from components that it measures on the GPU. Beside them stands what a plan says that has never seen such a
GPU (`alray plan --on`).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from alray.core import accelerator
from alray.core.run_folder.records import StageRecord
from alray.planning.prediction.machines import DEVICES
from benchmarks.runs import answer, recorded, write_results

NETWORKS = ("mlp", "resnet", "gpt")
PRECISIONS = ("float32", "bf16")
ALONE = ("pipeline.stages=1",)
WAYS = {
    "backpropagation": ("method=backpropagation", *ALONE),
    "decoupled_greedy": ("method=decoupled_greedy", *ALONE),
    "backpropagation, 1f1b on two stages": (
        "method=backpropagation",
        "pipeline.stages=2",
        "pipeline.schedule=1f1b",
        "pipeline.micro_batches=4",
    ),
    "decoupled_greedy, streamed over two stages": ("method=decoupled_greedy", "pipeline.stages=2"),
}


def published_name(device: torch.device) -> str | None:
    """The name of this GPU in the table of docs/predictions.md."""
    model = accelerator.name(device)
    fitting = [name for name in DEVICES if name in model]
    return max(fitting, key=len, default=None)


def besides_tensors() -> int:
    """Bytes that one process takes of a GPU that nobody else uses, besides torch's tensors: CUDA's context, kernels,
    and workspaces of cuBLAS and cuDNN. Read by this process, in which CUDA's context is there already."""
    program = (
        "import sys, torch\n"
        "x = torch.rand(256, 256, device='cuda', requires_grad=True)\n"
        "pictures = torch.rand(8, 16, 32, 32, device='cuda')\n"
        "torch.nn.functional.conv2d(pictures, torch.rand(16, 16, 3, 3, device='cuda')).sum().item()\n"
        "(x @ x).sum().backward()\n"
        "torch.cuda.synchronize()\n"
        "print(torch.cuda.memory_reserved(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    torch.zeros(1, device=accelerator.kind())
    free = torch.accelerator.get_memory_info()[0]
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        reserved = int(process.stdout.readline())
        taken = free - torch.accelerator.get_memory_info()[0]
        process.communicate("")
    return taken - reserved


def times_of(records: list[StageRecord]) -> dict[str, float]:
    """Seconds of a mini-batch on one stage, by what the stage did."""
    steps = sum(each.steps for each in records)
    names = ("data_s", "forward_s", "backward_s", "update_s", "send_wait_s", "receive_wait_s", "idle_s")
    return {name: sum(getattr(each, name) for each in records) / steps for name in names}


def measured(network: str, precision: str, way: str, device: str | None) -> dict[str, Any]:
    spec = Path(__file__).with_name(f"gpu_{network}.yaml")
    overrides = (*WAYS[way], f"run.precision={precision}")
    run = recorded(spec, *overrides, inline=WAYS[way][-1] == ALONE[0])
    summary = run.summary
    steady = [each for each in run.records if isinstance(each, StageRecord) and not each.warm_up and each.steps]
    stages = range(len(summary["peak_memory_bytes"]))
    row = {
        "network": network,
        "precision": precision,
        "way": way,
        "step_s": summary["step_time_s"],
        "predicted_s": summary["predicted_step_time_s"],
        "memory_bytes": summary["peak_memory_bytes"],
        "predicted_memory_bytes": summary["predicted_memory_bytes"],
        "stages": [times_of([each for each in steady if each.stage == stage]) for stage in stages],
        "weights_sha256": summary["weights_sha256"],
        "again": [],  # what further sessions measured, which `benchmarks.publish` adds
    }
    if device is not None and WAYS[way][-1] == ALONE[0]:
        elsewhere = answer("plan", str(spec), *overrides, "--on", f"1x{device}")
        row["counted_s"] = elsewhere["predicted_step_time_s"]
        row["counted_range_s"] = elsewhere["predicted_step_range_s"]
    return row


def main() -> None:
    found = accelerator.available()
    if found is None:
        raise SystemExit("benchmarks.gpu: there is no GPU here")
    device = published_name(found)
    result: dict[str, Any] = {
        "device": accelerator.name(found),
        "torch": torch.__version__,
        "besides_tensors_bytes": besides_tensors(),
        "rows": [],
    }
    for network in sys.argv[1:] or NETWORKS:
        for precision in PRECISIONS:
            for way in WAYS:
                row = measured(network, precision, way, device)
                result["rows"].append(row)
                print(row, flush=True)  # noqa: T201
                write_results("gpu", result)


if __name__ == "__main__":
    main()
