"""The page docs/benchmarks.md, from published figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import balance
from benchmarks import large_batch as large_batches

DDP_TARGET, TORCH_TRAINER_TARGET = 0.97, 1.0
FASTER_TARGET, FASTER_SLEEPING_TARGET, COST_TARGET, ACCURACY_TARGET = 1.7, 1.9, 0.02, 0.01


def streamed(result: dict[str, Any]) -> list[str]:
    lines = [
        "## Streaming over two one-thread stages",
        "",
        f"`make bench` ran `benchmarks/{result['spec']}` (four components that cost the same) three ways in each of "
        f"{len(result['repeats'])} repeats: streamed on two stages of one thread each, sequential on one thread, and "
        "sequential on two threads of one process. Milliseconds a mini-batch, medians after warm-up.",
        "",
        "| repeat | streamed | predicted | one thread | two threads | bubble | same bits as one thread |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, entry in enumerate(result["repeats"], start=1):
        lines.append(
            f"| {number} | {1e3 * entry['streamed_s']:.1f} | {1e3 * entry['predicted_s']:.1f} "
            f"| {1e3 * entry['sequential_s']:.1f} | {1e3 * entry['two_threads_s']:.1f} "
            f"| {100 * entry['bubble']:.1f} % | {'yes' if entry['same_bits'] else 'no'} |"
        )
    lines += [
        "",
        f"Medians of the ratios: streamed is **{result['over_sequential']:.2f}** times as fast as one thread and "
        f"**{result['over_two_threads']:.2f}** times as fast as two threads; the prediction is "
        f"**{result['predicted_over_measured']:.3f}** of what was measured.",
        "",
    ]
    return lines


def clock(result: dict[str, Any]) -> list[str]:
    ratio, pairs = result["ratio"], result["pairs"]
    return [
        "## What a stage's clock costs",
        "",
        f"`make bench` trained `specs/{result['spec']}`, a stage for each of its {result['stages']} components, in one "
        f"process: {len(pairs)} pairs of {result['steps']} mini-batches with the clock that measures where a stage's "
        "time goes, its records written, and with one that does nothing, in turns of a mini-batch each.",
        "",
        f"With the clock a mini-batch took **{ratio['mean']:.4f}** times as long, 95 % interval {ratio['low']:.4f} to "
        f"{ratio['high']:.4f} (medians {1e3 * median(pair['with_s'] for pair in pairs):.2f} and "
        f"{1e3 * median(pair['without_s'] for pair in pairs):.2f} ms).",
        "",
    ]


def searches(result: dict[str, Any]) -> list[str]:
    lines = [
        "## The search of a cut",
        "",
        "`make bench` cut chains of components with random times, a process for each search. Seconds are those of a "
        "processor.",
        "",
        "| components | stages | `schedule` | micro-batches | seconds | MB |",
        "|---|---|---|---|---|---|",
    ]
    for entry in result["searches"]:
        lines.append(
            f"| {entry['components']:,} | {entry['stages']} | `{entry['schedule']}` | {entry['micro_batches']} "
            f"| {entry['seconds']:.1f} | {entry['megabytes']:.0f} |"
        )
    fitted = result["fit"]
    for entry in result["limited"]:
        lines += [
            "",
            f"With a limit of the memory of each stage, the search with `{entry['schedule']}` of "
            f"{entry['components']:,} components on {entry['stages']} stages took **{entry['seconds']:.1f}** processor "
            f"seconds and {entry['megabytes']:.0f} MB{entry.get('where', '')}.",
        ]
    lines += [
        "",
        f"`alray plan --compare` of DGL with {fitted['components']} such components on {fitted['devices']} A100 showed "
        f"{fitted['layouts']} layouts after **{fitted['seconds']:.0f}** processor seconds, with "
        f"{fitted['megabytes']:.0f} MB, torch included.",
    ]
    return [*lines, ""]


def brute_force(result: dict[str, Any]) -> list[str]:
    def percent(name: str) -> str:
        return f"{100 * result[name]:.3g} %"

    return [
        "## Every cut of random chains",
        "",
        f"`make bench` predicted all {result['cuts']:,} cuts of {result['chains']} random chains, "
        f"{result['with_limits']} of them with memory limits, with messages and links, each schedule in its turn "
        "(`benchmarks/brute_force.py`). As for a plan, the search found the best cut of "
        f"**{percent('best')}** of the chains: it simulates all of so few cuts.",
        "",
        "With that turned off, as for a chain with too many cuts, moves of boundaries found the best cut of "
        f"{percent('moved_best')}, and in 95 % of the chains one within {percent('moved_far')} of it. In "
        f"{percent('right')} of the chains no cut is below its bound, and what is called the best cut is it.",
        "",
    ]


def memory(result: dict[str, Any]) -> list[str]:
    ratios = [entry["predicted_bytes"] / entry["measured_bytes"] for entry in result["stages"]]
    lines = [
        "## Predicted and measured memory",
        "",
        "`make bench` trained four networks for three mini-batches of "
        f"{result['size']['batch']} samples with Adam, each stage in one process, and counted its tensors by torch's "
        "MemTracker; the plan predicts from the meta device. Without the buffers of alray's edges and the copy "
        "a checkpoint is written from, whose sizes are fixed.",
        "",
        "| network | way | stage | predicted MB | measured MB | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for entry, ratio in zip(result["stages"], ratios, strict=True):
        lines.append(
            f"| {entry['network']} | {entry['way']} | {entry['stage']} | {entry['predicted_bytes'] / 1e6:.1f} "
            f"| {entry['measured_bytes'] / 1e6:.1f} | {ratio:.3f} |"
        )
    lines += ["", f"The ratios are between **{min(ratios):.3f}** and **{max(ratios):.3f}**.", ""]
    return lines


def activation_memory(result: dict[str, Any]) -> list[str]:
    stages = result["stages"]
    by_way = {way: [entry for entry in stages if entry["way"] == way] for way in ("1F1B", "DGL")}
    highest = {way: max(entry["counted_bytes"] for entry in entries) for way, entries in by_way.items()}
    predicted = {way: max(entry["predicted_bytes"] for entry in entries) for way, entries in by_way.items()}
    lines = [
        "## Activation memory of eight stages",
        "",
        f"`make bench` trained a GPT of {len(by_way['DGL'])} components of one layer of width 256, one on each stage, "
        f"for three mini-batches. 1F1B had {result['micro_batches']} micro-batches of {result['windows']} windows of "
        f"{result['context']} tokens; streamed DGL had mini-batches of the size of a micro-batch, whose gradients "
        "`optimizer.accumulate` adds up. So both learn from the same tokens between two updates. Megabytes that a "
        "stage holds at its peak beyond weights, gradients and the state of the optimizer.",
        "",
        "| stage | 1F1B predicted | 1F1B counted | DGL predicted | DGL counted |",
        "|---|---|---|---|---|",
    ]
    for pipeline, local in zip(by_way["1F1B"], by_way["DGL"], strict=True):
        sizes = (entry[key] for entry in (pipeline, local) for key in ("predicted_bytes", "counted_bytes"))
        lines.append(f"| {pipeline['stage']} | " + " | ".join(f"{size / 1e6:.1f}" for size in sizes) + " |")
    lines += [
        "",
        f"The largest stage of DGL needs **{highest['DGL'] / highest['1F1B']:.3f}** of the largest stage of 1F1B "
        f"(predicted {predicted['DGL'] / predicted['1F1B']:.3f}). With mini-batches as large as those of 1F1B, DGL has "
        "no such advantage: it then holds a whole mini-batch.",
        "",
    ]
    return lines


def start(result: dict[str, Any]) -> list[str]:
    lines = [
        "## Time to the first mini-batch",
        "",
        f"`make bench` ran `alray run specs/{result['spec']}` on Ray from Enter to the end of its first mini-batch, "
        "and `benchmarks/plain_start.py` from Enter to its first message: Ray, two actors that import torch, and a "
        "process group, with nothing to read, measure or plan. Seconds; next to them the processor time of "
        "`alray plan` and of `import torch`.",
        "",
        "| repeat | first line | first mini-batch | plain script | ratio | `alray plan` | `import torch` |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, entry in enumerate(result["repeats"], start=1):
        lines.append(
            f"| {number} | {entry['first_line_s']:.2f} | {entry['first_mini_batch_s']:.1f} | {entry['plain_s']:.1f} "
            f"| {entry['first_mini_batch_s'] / entry['plain_s']:.2f} | {entry['plan_processor_s']:.1f} "
            f"| {entry['torch_processor_s']:.1f} |"
        )
    ratio, first, plan = result["over_plain"], result["first_line_s"], result["plan_beyond_torch_s"]
    lines += [
        "",
        f"The median of the ratios is **{ratio:.2f}** (target: at most 1.5: {met(ratio <= 1.5)}). The first line came "
        f"after at most **{first:.2f} s** (0.5 s: {met(first <= 0.5)}). `alray plan` takes **{plan:.1f} s** of a "
        f"processor beyond `import torch` (3 s: {met(plan <= 3.0)}).",
        "",
    ]
    return lines


def trials(result: dict[str, Any]) -> list[str]:
    lines = [
        "## What a trial costs on top of its training",
        "",
        f"`make bench` ran the study `benchmarks/{result['spec']}`, two layers on the digits. Processor seconds of a "
        "fresh Python that imports what a trial of one stage needs, and of `import torch` alone; of a trial in a "
        f"process that is used again, without its training (the straight line through trials of {result['short']} and "
        f"of {result['long']} mini-batches, at no mini-batch); trials that ended in a minute, of "
        f"{result['trial_s']:g} seconds of training each, {result['slots']} at once; and of a trial of two stages with "
        f"{result['short']} mini-batches, all processes of the study together: the first, which starts them, and the "
        "median of the next ones, which use them again.",
        "",
        "| repeat | imports | `import torch` | one stage, warm | trials a minute | two stages, first | next |",
        "|---|---|---|---|---|---|---|",
    ]
    for number, entry in enumerate(result["repeats"], start=1):
        two = entry["two_stages"]
        lines.append(
            f"| {number} | {entry['import_s']:.2f} | {entry['torch_s']:.2f} | {entry['warm']['trial_s']:.2f} "
            f"| {entry['rate']['a_minute']:.1f} | {two['first_s']:.1f} | {two['next_s']:.2f} |"
        )
    imports, beside, rate = result["import_s"], result["beyond_training_s"], result["a_minute"]
    lines += [
        "",
        f"Medians: the imports take **{imports:.2f} s** of a processor (target: at most 2.0: {met(imports <= 2.0)}), a "
        f"trial **{beside:.2f} s** on top of its training (0.7: {met(beside <= 0.7)}), and **{rate:.1f}** trials end "
        f"in a minute (at least 35: {met(rate >= 35)}). A further trial of two stages takes "
        f"**{result['next_of_two_stages_s']:.2f} s**, its training included.",
        "",
    ]
    return lines


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
        "and what dynamic shares cost another network, are asked by `specs/studies/laptop/dynamic_batch_size.yaml`, "
        "which has no report yet.",
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


SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "streamed": streamed,
    "clock": clock,
    "start": start,
    "trials": trials,
    "memory": memory,
    "activation_memory": activation_memory,
    "searches": searches,
    "brute_force": brute_force,
    "replicas": throughput,
    "balance": dynamic_batch_size,
    "large_batch": large_batch,
}
"""Each result by its file's name, in the page's order."""


def page(results: Path) -> str:
    """The page of all results that there are."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make publish` from `benchmarks/results/*.json`. A figure is a ratio of two things measured in one",
        "run: absolute times depend on the machine and drift.",
        "",
    ]
    for name, section in SECTIONS.items():
        file = results / f"{name}.json"
        if file.exists():
            lines += section(json.loads(file.read_text(encoding="utf-8")))
    return "\n".join(lines)
