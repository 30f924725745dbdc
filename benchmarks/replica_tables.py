"""The sections of docs/benchmarks.md about replicas: throughput beside DDP, and dynamic batch size."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks import balance
from benchmarks import large_batch as large_batches

DDP_TARGET, TORCH_TRAINER_TARGET = 0.97, 1.0
FASTER_TARGET, FASTER_SLEEPING_TARGET, COST_TARGET, ACCURACY_TARGET = 1.7, 1.9, 0.02, 0.01


def throughput(result: dict[str, Any]) -> list[str]:
    """Two replicas by alray, plain DDP and Ray Train."""
    lines = [
        "## Two replicas compared with DDP and Ray Train",
        "",
        f"`make replicas` trained the network of `benchmarks/{result['spec']}` on two processes of one thread each, "
        "gradients averaged over gloo: by alray, by a script with torch's `DistributedDataParallel` alone "
        "(`benchmarks/plain_ddp.py`), and by Ray Train's `TorchTrainer` (`replicas.engine: ray_train`). Milliseconds "
        "a mini-batch, medians after warm-up.",
        "",
        "| repeat | alray | plain DDP | Ray Train |",
        "|---|---|---|---|",
    ]
    for number, entry in enumerate(result["repeats"], start=1):
        times = (1e3 * entry[key] for key in ("graph_s", "plain_ddp_s", "ray_train_s"))
        lines.append(f"| {number} | " + " | ".join(f"{time_ms:.1f}" for time_ms in times) + " |")
    return [
        *lines,
        "",
        f"Medians of the ratios: alray's throughput is **{result['over_plain_ddp']:.3f}** of the plain script's "
        f"(target: at least {DDP_TARGET}: {met(result['over_plain_ddp'] >= DDP_TARGET)}) and "
        f"**{result['over_ray_train']:.3f}** of Ray Train's (target: at least {TORCH_TRAINER_TARGET}: "
        f"{met(result['over_ray_train'] >= TORCH_TRAINER_TARGET)}).",
        "",
    ]


def dynamic_batch_size(result: dict[str, Any]) -> list[str]:
    """Dynamic shares beside fixed ones."""
    lines = [
        "## Dynamic batch size",
        "",
        f"`make replicas` trained `benchmarks/{result['spec']}` on two replicas with fixed shares and with dynamic "
        f"ones, replica 1 slowed {balance.FACTOR} to 1 from epoch {balance.FIRST} to {balance.LAST}; once more with "
        "blocks that only sleep; and undisturbed. Seconds an epoch, medians of the repeats; the shares are those "
        "after an epoch in the first repeat.",
        "",
        "| epoch | fixed | dynamic | shares | fixed, sleeping | dynamic, sleeping | shares | undisturbed, fixed | "
        "undisturbed, dynamic |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    fixed, dynamic = balance.WAYS
    runs = result["runs"]
    for place in range(len(runs["slowed"][fixed][0]["epoch_s"])):
        cells = []
        for case in balance.CASES:
            for way in balance.WAYS:
                cells.append(f"{median(entry['epoch_s'][place] for entry in runs[case][way]):.2f}")
            if case != "undisturbed":
                cells.append(" : ".join(map(str, runs[case][dynamic][0]["shares"][place + 1])))
        lines.append(f"| {place + 2} | " + " | ".join(cells) + " |")
    cost, apart = result["cost"], result["accuracy_apart"]
    return [
        *lines,
        "",
        f"From the third slowed epoch on an epoch is **{result['faster']:.2f}** times as fast as with fixed shares "
        f"(target: at least {FASTER_TARGET}: {met(result['faster'] >= FASTER_TARGET)}), with sleeping blocks "
        f"**{result['faster_sleeping']:.2f}** times (at least {FASTER_SLEEPING_TARGET}: "
        f"{met(result['faster_sleeping'] >= FASTER_SLEEPING_TARGET)}). Undisturbed it costs **{100 * cost:.1f} %** "
        f"(under {100 * COST_TARGET:.0f} %: {met(cost < COST_TARGET)}). Shares are even again, within "
        f"{100 * balance.EVEN:.0f} %, {balance.SETTLED} epochs after the disturbance: {met(result['even_again'])}. "
        f"The final test accuracy differs by {100 * apart:+.2f} points (within {100 * ACCURACY_TARGET:.0f}: "
        f"{met(abs(apart) <= ACCURACY_TARGET)}).",
        "",
        "These are epochs of one network. The time of a whole training, with the epochs in which the shares settle, "
        "and what dynamic shares cost another network, are in [the study](studies/dynamic_batch_size/README.md).",
        "",
    ]


def large_batch(result: dict[str, Any]) -> list[str]:
    """Large mini-batches with and without warm-up, beside a small one."""
    runs = result["runs"]
    epochs = len(next(iter(runs.values()))[0]["accuracies"])
    shown = [epoch for epoch in (1, 2, 3, 6, 9, 12) if epoch < epochs] + [epochs]
    lines = [
        "## Large mini-batches",
        "",
        f"`make replicas` trained `specs/laptop/{result['spec']}` on two replicas: as it is (the rate scaled with the "
        "mini-batch, after a warm-up), without the warm-up, with the rate of the small mini-batch, and with the small "
        f"mini-batch. Test accuracy in percent after an epoch, means over {len(runs['small'])} seeds.",
        "",
        "| way | samples a mini-batch | mini-batches | " + " | ".join(f"epoch {epoch}" for epoch in shown) + " |",
        "|---" * (3 + len(shown)) + "|",
    ]
    for way, entries in runs.items():
        cells = [f"{100 * large_batches.mean_accuracy(entries, epoch - 1):.1f}" for epoch in shown]
        lines.append(f"| {way} | {entries[0]['batch_size']} | {entries[0]['steps']} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def met(holds: bool) -> str:
    return "yes" if holds else "**no**"
