"""The page docs/benchmarks.md, from published figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import balance
from benchmarks import large_batch as large_batches


def streamed(result: dict[str, Any]) -> list[str]:
    same = sum(entry["same_bits"] for entry in result["repeats"])
    return [
        "## Streaming over two stages",
        "",
        f"Four components that cost the same (`benchmarks/{result['spec']}`), streamed over two stages of one thread "
        f"each, are **{result['over_sequential']:.2f}** times as fast as on one thread, and "
        f"**{result['over_two_threads']:.2f}** times as fast as with two threads in one process. The prediction is "
        f"**{result['predicted_over_measured']:.3f}** of what was measured. {same} of {len(result['repeats'])} repeats "
        "end in the bits of one thread (`make bench`).",
        "",
    ]


def schedules(result: dict[str, Any]) -> list[str]:
    runs = result["runs"]
    lines = [
        "## Schedules",
        "",
        f"Eight Transformer components that cost the same (`benchmarks/{result['spec']}`) on two stages of one thread "
        "each; the first four train by AL, the others by backpropagation (`make schedules`; [predicted "
        "times and bubbles](pipelines.md#measured)).",
        "",
        "| schedule | step, ms | over that of 1f1b |",
        "|---|---:|---:|",
    ]
    for name, entries in runs.items():
        step = 1e3 * median(entry["step_time_s"] for entry in entries)
        over = median(ratios(entries, runs["1f1b"]))
        lines.append(f"| `{name}` | {step:.1f} | {over:.2f} |")
    return [*lines, ""]


def ratios(entries: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[float]:
    """The step times of runs over those of others in the same repeats."""
    return [own["step_time_s"] / other["step_time_s"] for own, other in zip(entries, others, strict=True)]


def engines(result: dict[str, Any]) -> list[str]:
    two = [median(case["ratios"]) for name, case in result.items() if "sleeping" not in name]
    every = [median(case["ratios"]) for case in result.values()]
    same = sum(case["same_bits"] for case in result.values())
    return [
        "## Pipelines beside torch.distributed.pipelining",
        "",
        f"alray's executor takes **{median(two):.2f}** of the step of torch's, on the same edges: the median over "
        f"{len(two)} cases on two stages; the slowest of all {len(every)} cases takes {max(every):.2f}. {same} of "
        f"{len(every)} end in the same bits (`make engines`). `alray run` beside a plain script with torch's pipelines "
        "over gloo, on two stages with 8 micro-batches; streamed is DGL beside two plain processes with a queue:",
        "",
    ]


def plain_pipelines(result: dict[str, Any]) -> list[str]:
    lines = ["| network, schedule | alray, ms | plain script, ms | ratio |", "|---|---:|---:|---:|"]
    for name, case in result.items():
        alray, plain = ([entry[key] for entry in case["repeats"]] for key in ("alray_s", "plain_s"))
        ratio = median(ours / theirs for ours, theirs in zip(alray, plain, strict=True))
        lines.append(f"| {name} | {1e3 * median(alray):.1f} | {1e3 * median(plain):.1f} | {ratio:.2f} |")
    return [*lines, ""]


def recomputation(result: dict[str, Any]) -> list[str]:
    found = [median(case["ratios"]) for case in result.values()]
    return [
        "With `activation_checkpointing` a stage recomputes before the gradient arrives: this takes "
        f"{min(found):.2f} to {max(found):.2f} of the step in which it recomputes afterwards (`make recomputation`).",
        "",
    ]


def uneven(result: dict[str, Any]) -> list[str]:
    return [
        "## Cuts",
        "",
        f"Of all schedules and cuts of an uneven network (`benchmarks/{result['spec']}`) the plan chose "
        f"`{result['chosen'][0]}`; the fastest was `{result['best']}`. An even cut takes "
        f"{median(result['over_uniform']):.2f} times as long (`make schedules`).",
        "",
    ]


def brute_force(result: dict[str, Any]) -> list[str]:
    def percent(name: str) -> str:
        return f"{100 * result[name]:.3g} %"

    return [
        f"The search finds the best of all {result['cuts']:,} cuts of {result['chains']} random chains in "
        f"{percent('best')} of them. Where it may not try all, as with many components, it finds it in "
        f"{percent('moved_best')} (`make bench`). How long it searches:",
        "",
    ]


def searches(result: dict[str, Any]) -> list[str]:
    lines = ["| components | stages | seconds, over all schedules | MB |", "|---:|---:|---:|---:|"]
    sizes = dict.fromkeys((entry["components"], entry["stages"]) for entry in result["searches"])
    for size in sizes:
        found = [entry for entry in result["searches"] if (entry["components"], entry["stages"]) == size]
        seconds, megabytes = ([entry[key] for entry in found] for key in ("seconds", "megabytes"))
        lines.append(
            f"| {size[0]:,} | {size[1]} | {min(seconds):.1f} to {max(seconds):.1f} "
            f"| {min(megabytes):.0f} to {max(megabytes):.0f} |"
        )
    fitted = result["fit"]
    return [
        *lines,
        "",
        f"`alray plan --compare` of {fitted['components']} components on {fitted['devices']} A100 showed "
        f"{fitted['layouts']} layouts after {fitted['seconds']:.0f} seconds.",
        "",
    ]


def replicas(result: dict[str, Any]) -> list[str]:
    return [
        "## Replicas beside DDP and Ray Train",
        "",
        f"On two processes of one thread each, gradients averaged over gloo (`benchmarks/{result['spec']}`), alray's "
        f"throughput is **{result['over_plain_ddp']:.3f}** of that of a script with torch's DDP, and "
        f"**{result['over_ray_train']:.3f}** of that of Ray Train's `TorchTrainer` (`make replicas`).",
        "",
    ]


def dynamic_batch_size(result: dict[str, Any]) -> list[str]:
    return [
        "## Dynamic batch size",
        "",
        f"With one of two replicas slowed {balance.FACTOR} to 1, an epoch with dynamic shares is "
        f"**{result['faster']:.2f}** times as fast as with fixed ones, from the third slowed epoch on. Undisturbed it "
        f"costs {100 * result['cost']:.1f} %, and the final test accuracy differs by "
        f"{100 * result['accuracy_apart']:+.2f} points. This is one network (`make replicas`). "
        "[A study](studies/dynamic_batch_size/README.md) of another one on one day has 0.54 of the epoch (0.49 to "
        "0.59), all epochs counted; undisturbed 0.85 (0.74 to 0.98), by a machine that changed its pace: what it costs "
        "there is open.",
        "",
    ]


def large_batch(result: dict[str, Any]) -> list[str]:
    runs = result["runs"]
    epochs = len(next(iter(runs.values()))[0]["accuracies"])
    shown = [epoch for epoch in (1, 3, 6) if epoch < epochs] + [epochs]
    lines = [
        "## Large mini-batches",
        "",
        f"Test accuracy of `specs/laptop/{result['spec']}` in percent, means over {len(runs['small'])} seeds "
        "(`make replicas`):",
        "",
        "| way | samples | mini-batches | " + " | ".join(f"epoch {epoch}" for epoch in shown) + " |",
        "|---" + "|---:" * (2 + len(shown)) + "|",
    ]
    for way, entries in runs.items():
        cells = [f"{100 * large_batches.mean_accuracy(entries, epoch - 1):.1f}" for epoch in shown]
        lines.append(f"| {way} | {entries[0]['batch_size']} | {entries[0]['steps']} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def memory(result: dict[str, Any]) -> list[str]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in result["stages"]:
        found.setdefault((entry["network"], entry["way"]), []).append(entry)
    rows = {
        key: [max(entry[kind] for entry in entries) / 1e6 for kind in ("predicted_bytes", "measured_bytes")]
        for key, entries in found.items()
        if "[2, 2]" in key[1]
    }
    every = [entry["predicted_bytes"] / entry["measured_bytes"] for entry in result["stages"]]
    return [
        "## Memory",
        "",
        f"Tensors of the largest of two stages, in MB, with mini-batches of {result['size']['batch']} samples and "
        f"Adam. Over all {len(every)} stages that were tried the prediction is {min(every):.3f} to {max(every):.3f} "
        "of what was counted (`make bench`).",
        "",
        "| network | way | predicted | counted |",
        "|---|---|---:|---:|",
        *(f"| {network} | {way} | {row[0]:.1f} | {row[1]:.1f} |" for (network, way), row in rows.items()),
        "",
        *_on_one_device(result["stages"]),
    ]


def _on_one_device(stages: list[dict[str, Any]]) -> list[str]:
    networks = list(dict.fromkeys(entry["network"] for entry in stages))
    counted = {(entry["way"], entry["network"]): entry["measured_bytes"] / 1e6 for entry in stages}
    lines = [
        "The same counted on one device, where `[4]` holds the activations of all four components, and `[1, 1, 1, 1]` "
        "is [`partition: cyclic`](pipelines.md#memory):",
        "",
        f"| way | {' | '.join(networks)} |",
        f"|---|{'---:|' * len(networks)}",
    ]
    for way in dict.fromkeys(entry["way"] for entry in stages):
        if "[4]" in way or "one stage" in way:
            lines.append(f"| {way} | {' | '.join(f'{counted[way, network]:.1f}' for network in networks)} |")
    return [*lines, ""]


def activation_memory(result: dict[str, Any]) -> list[str]:
    stages = result["stages"]
    highest = {
        way: max(entry["counted_bytes"] for entry in stages if entry["way"] == way) / 1e6 for way in ("1F1B", "DGL")
    }
    return [
        f"On eight stages a GPT needs at most {highest['1F1B']:.1f} MB of activations a stage by 1F1B in "
        f"{result['micro_batches']} micro-batches, and {highest['DGL']:.1f} MB by DGL whose mini-batches are as large "
        "as a micro-batch and whose gradients `optimizer.accumulate` adds up. With mini-batches as large as those of "
        "1F1B, DGL has no such advantage: it then holds a whole mini-batch.",
        "",
    ]


def start(result: dict[str, Any]) -> list[str]:
    first = median(entry["first_mini_batch_s"] for entry in result["repeats"])
    return [
        "## Overheads",
        "",
        f"- **Start.** `alray run` shows its first line within {result['first_line_s']:.1f} s, and ends its first "
        f"mini-batch after {first:.1f} s: {result['over_plain']:.2f} times as long as a plain Ray script that trains "
        f"nothing. `alray plan` takes {result['plan_beyond_torch_s']:.1f} s of a processor beyond `import torch`.",
    ]


def trials(result: dict[str, Any]) -> list[str]:
    return [
        f"- **A trial of a study** costs {result['beyond_training_s']:.2f} s of a processor on top of its training in "
        f"a process that is used again; {result['a_minute']:.0f} trials of {result['trial_s']:g} s end in a minute, "
        f"{result['slots']} at once.",
    ]


def clock(result: dict[str, Any]) -> list[str]:
    ratio = result["ratio"]
    return [
        f"- **The clock** of a stage, which measures where its time goes, makes a mini-batch {ratio['mean']:.4f} times "
        f"as long (95 % interval {ratio['low']:.4f} to {ratio['high']:.4f}).",
        "",
    ]


SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "streamed": streamed,
    "schedules": schedules,
    "engines": engines,
    "plain_pipelines": plain_pipelines,
    "recomputation": recomputation,
    "uneven": uneven,
    "brute_force": brute_force,
    "searches": searches,
    "replicas": replicas,
    "balance": dynamic_batch_size,
    "large_batch": large_batch,
    "memory": memory,
    "activation_memory": activation_memory,
    "start": start,
    "trials": trials,
    "clock": clock,
}
"""Each result by its file's name, in the page's order."""

INTRODUCTION = """\
# Speed

How fast alray is beside other programs, what its parts cost, and how much memory they need: on two processor cores,
with small networks, medians of several repeats. Times of a machine drift, so compare the ratios: each is a median of
ratios within a repeat, and not that of the two medians beside it. Which *method* is faster is [another
question](crossover.md); how right the plan is, [another one](predictions.md).

Written by `make publish` from `benchmarks/results/*.json`.
"""


def page(results: Path) -> str:
    """The page of all results that there are."""
    lines = INTRODUCTION.split("\n")
    for name, section in SECTIONS.items():
        file = results / f"{name}.json"
        if file.exists():
            lines += section(json.loads(file.read_text(encoding="utf-8")))
    return "\n".join(lines)
