"""The page docs/schedules.md, from published figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from alray.planning.schedules.table import SCHEDULES

LOCAL_TARGET, PIPELINE_TARGET = 0.05, 0.10
"""How far a prediction may be from the measured median: schedules of local losses, of backpropagation."""
LOCAL = [name for name, schedule in SCHEDULES.items() if schedule.local_losses]


def page(results: Path) -> str:
    """The page of all results that there are."""
    lines = [
        "# Schedules, predicted and measured",
        "",
        "Measured by `make schedules`, written by `make publish` from `benchmarks/results`. The runs of one repeat",
        "follow each other, and a ratio compares runs of one repeat: absolute times depend on the machine and drift.",
        "",
    ]
    for name, section in SECTIONS.items():
        file = results / f"{name}.json"
        if file.exists():
            lines += section(json.loads(file.read_text(encoding="utf-8")))
    return "\n".join(lines)


def schedules(result: dict[str, Any]) -> list[str]:
    """The table of all schedules on one network."""
    runs = result["runs"]
    lines = [
        "## All schedules on one network",
        "",
        f"`benchmarks/{result['spec']}`: eight Transformer components that cost the same, on two stages of one thread "
        f"each; medians of {_repeats(runs)}. The first four train by Associated Learning, the others by "
        "backpropagation; `2bw` trains other weights than they do, for its gradients are an update late. A run "
        "predicts its step before it trains. The bubble is the share of the stages' time in which they do not compute.",
        "",
        "| schedule | step, ms | step over that of 1f1b | predicted, ms | predicted / measured | bubble "
        "| predicted bubble | target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, entries in runs.items():
        ratio = _ratio(entries)
        allowed = LOCAL_TARGET if name in LOCAL else PIPELINE_TARGET
        lines.append(
            f"| `{name}` | {_ms(entries, 'step_time_s')} | {_of_repeats(entries, runs['1f1b'])} "
            f"| {_ms(entries, 'predicted_step_time_s')} | **{ratio:.3f}** "
            f"| {_percent(entries, 'bubble')} | {_percent(entries, 'predicted_bubble')} | {_within(ratio, allowed)} |"
        )
    same = [name for name in runs if name not in (*LOCAL, "naive") and not SCHEDULES[name].gradient_delay]
    best = min(same, key=lambda name: median(step_ratios(runs[name], runs["1f1b"])))
    streamed = {
        name: f"{_of_repeats(runs['streamed'], runs[name])} of one of `{name}`"
        for name in ("sequential", "naive", "zero_bubble", "2bw")
    }
    hashes = {entry["weights_sha256"] for name in LOCAL for entry in runs[name]}
    weights = "the same weights, bit for bit" if len(hashes) == 1 else f"{len(hashes)} different sets of weights"
    return [
        *lines,
        "",
        "A ratio is the median over repeats, with the smallest and the largest, and no quotient of two others. "
        f"A step of `streamed` takes {', '.join(streamed.values())}. Of the pipelines that train what "
        f"one device trains `{best}` is the fastest: {_of_repeats(runs[best], runs['1f1b'])} of a step of `1f1b`. "
        "The schedules of local losses "
        f"ended in {weights}.",
        "",
    ]


def laws(result: dict[str, Any]) -> list[str]:
    """The four schedules of local losses beside their laws."""
    lines = [
        "## The laws of the schedules",
        "",
        f"`benchmarks/{result['spec']}`: {result['stages']} stages whose blocks have no parameters and sleep in "
        "proportion to rows, F = 20 ms and B = 40 ms at the full batch; "
        f"medians of {_repeats(result['runs'])}. `sequential`, `parallel_backward` and `overlapped` end every "
        "mini-batch at a barrier, so none of them can be faster than the way of a mini-batch through all stages.",
        "",
        "The law is taken twice: of the sleep alone, and of F and B as the stages' clocks had them in the same "
        "run, which besides the sleep hold what a component of Associated Learning computes for its labels and losses, "
        "and U: 1 to 2 ms after a sleep, when caches are cold. Beyond the second one there are only messages and "
        "barriers. All stages share the machine's processors; in `parallel_backward` all of them begin their "
        "gradients at once, so it is slower than its law.",
        "",
        "| schedule | law | of the sleep, ms | of the clocks, ms | step, ms | step / sleep | target "
        "| step / clocks | target |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, entries in result["runs"].items():
        law = result["laws"][name]
        of_sleep = _median(entries, "step_time_s") / law["law_s"]
        of_clocks = float(median(entry["step_time_s"] / entry["clocks_law_s"] for entry in entries))
        lines.append(
            f"| `{name}` | `{law['formula']}` | {1e3 * law['law_s']:.1f} | {_ms(entries, 'clocks_law_s')} "
            f"| {_ms(entries, 'step_time_s')} | **{of_sleep:.3f}** | {_within(of_sleep, law['allowed'])} "
            f"| **{of_clocks:.3f}** | {_within(of_clocks, law['allowed'])} |"
        )
    faster = {
        name: median(step_ratios(result["runs"]["sequential"], result["runs"][name]))
        for name in ("streamed", "overlapped")
    }
    return [
        *lines,
        "",
        f"On {result['stages']} stages `streamed` is **{faster['streamed']:.1f}** times as fast as `sequential`, and "
        f"`overlapped` **{faster['overlapped']:.1f}** times.",
        "",
    ]


def uneven(result: dict[str, Any]) -> list[str]:
    """Every schedule with every cut of an uneven network, and what the plan chose."""
    runs = result["runs"]
    lines = [
        "## Every schedule and cut of an uneven network",
        "",
        f"`benchmarks/{result['spec']}`: a VGG of four components that cost very different times, on one stage and on "
        f"two; medians of {_repeats(runs)}, the fastest first.",
        "",
        "| schedule and cut | step, ms | predicted, ms | predicted / measured |",
        "|---|---|---|---|",
    ]
    for name in sorted(runs, key=lambda name: _median(runs[name], "step_time_s")):
        entries = runs[name]
        lines.append(
            f"| `{name}` | {_ms(entries, 'step_time_s')} | {_ms(entries, 'predicted_step_time_s')} "
            f"| {_ratio(entries):.3f} |"
        )
    chosen = list(dict.fromkeys(result["chosen"]))
    return [
        *lines,
        "",
        f"The plans, made before each repeat, chose {', '.join(f'`{name}`' for name in chosen)}; the fastest was "
        f"`{result['best']}`. The step of what was chosen is **{median(result['over_best']):.3f}** of the fastest "
        f"one's (target: at most 1.03), and the even cut takes **{median(result['over_uniform']):.2f}** times as long "
        "as it (target: at least 1.25).",
        "",
    ]


def _repeats(runs: dict[str, Sequence[Any]]) -> str:
    count = min(len(entries) for entries in runs.values())
    return f"{count} repeat{'' if count == 1 else 's'}"


def _median(entries: Sequence[dict[str, Any]], key: str) -> float:
    return float(median(entry[key] for entry in entries))


def _ratio(entries: Sequence[dict[str, Any]]) -> float:
    return float(median(entry["predicted_step_time_s"] / entry["step_time_s"] for entry in entries))


def _of_repeats(entries: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> str:
    """The step times over those of others in the same repeats: the median, and the smallest and largest."""
    found = step_ratios(entries, others)
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def step_ratios(entries: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[float]:
    """The step times of runs over those of others in the same repeats."""
    return [own["step_time_s"] / other["step_time_s"] for own, other in zip(entries, others, strict=True)]


def _ms(entries: Sequence[dict[str, Any]], key: str) -> str:
    return f"{1e3 * _median(entries, key):.1f}"


def _percent(entries: Sequence[dict[str, Any]], key: str) -> str:
    return f"{100 * _median(entries, key):.1f} %"


def _within(ratio: float, allowed: float) -> str:
    return f"within {100 * allowed:.0f} %: {'yes' if abs(ratio - 1.0) <= allowed else '**no**'}"


def engines(result: dict[str, Any]) -> list[str]:
    """alray's executor beside torch's."""
    lines = [
        "## alray's executor and that of torch.distributed.pipelining",
        "",
        "`make engines`: in each process of a pipeline of backpropagation both train a copy of the same components on "
        "the same mini-batches, over edges of the same kind, in turns of six mini-batches; seven pairs. A ratio is "
        "that of the two blocks of a pair: below 1, alray's executor is faster. The ideal is the step of the same "
        "lists with the computing that alray's stages measured, if messages took no time. Both end in the same "
        "weights, bit for bit.",
        "",
        *_pairs(result, "alray", "torch"),
    ]
    two = [median(case["ratios"]) for name, case in result.items() if "sleeping" not in name]
    every = [median(case["ratios"]) for case in result.values()]
    slower = sum(ratio > 1.0 for ratio in every)
    on_two = f"Over the {len(two)} cases on two stages the median ratio is **{median(two):.2f}**. " if two else ""
    return [
        *lines,
        "",
        f"{on_two}In {slower} of all {len(every)} cases the median is above 1, at most {max(every):.2f}.",
        "",
    ]


def plain_pipelines(result: dict[str, Any]) -> list[str]:
    """alray as users run it, beside a plain script."""
    lines = [
        "## alray beside a plain script with torch.distributed.pipelining",
        "",
        "Also by `make engines`: `alray run`, and a script of torch alone over gloo (`benchmarks/plain_pipeline.py`), "
        "train the same network, with mini-batches of the same size and the same optimizer, on two stages with 8 "
        f"micro-batches, one after another; {len(next(iter(result.values()))['repeats'])} pairs. Milliseconds of a "
        "mini-batch, medians after warm-up. A ratio below 1: alray is faster. alray sends its messages through shared "
        "memory, and measures each action.",
        "",
        "| network, schedule | alray, ms | plain script, ms | ratio, median | smallest | largest |",
        "|---|---|---|---|---|---|",
    ]
    for name, case in result.items():
        alray, plain = ([entry[key] for entry in case["repeats"]] for key in ("alray_s", "plain_s"))
        ratios = [ours / theirs for ours, theirs in zip(alray, plain, strict=True)]
        lines.append(
            f"| {name} | {1e3 * median(alray):.1f} | {1e3 * median(plain):.1f} | **{median(ratios):.2f}** "
            f"| {min(ratios):.2f} | {max(ratios):.2f} |"
        )
    return [*lines, ""]


def split_backward(result: dict[str, Any]) -> list[str]:
    """The lists of zero_bubble beside those of 1f1b."""
    return [
        "## zero_bubble beside 1f1b on many stages",
        "",
        "Also by `make engines`, in the same way: both by alray's executor, on the same edges. A ratio below 1: "
        "`zero_bubble` is faster. The stages sleep and have no weights, so a split backward has nothing to gain there, "
        "and its further actions cost time of two processors.",
        "",
        *_pairs(result, "zero_bubble", "1f1b"),
        "",
    ]


def _pairs(result: dict[str, Any], first: str, second: str) -> list[str]:
    """A table of two engines, block by block."""
    lines = [
        f"| network, schedule, micro-batches | {first}, ms | {second}, ms | ratio, median | smallest | largest "
        f"| {first} over ideal | bits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, case in result.items():
        ratios = case["ratios"]
        own_s, other_s = (median(seconds) for seconds in case["seconds"])
        lines.append(
            f"| {name} | {1e3 * own_s:.1f} | {1e3 * other_s:.1f} | **{median(ratios):.2f}** | {min(ratios):.2f} "
            f"| {max(ratios):.2f} | {own_s / case['ideal_s']:.2f} | {'same' if case['same_bits'] else 'others'} |"
        )
    return lines


def recomputation(result: dict[str, Any]) -> list[str]:
    """Recomputation before and after the gradient arrives."""
    return [
        "## Recomputation before the gradient arrives",
        "",
        "`make recomputation`: pipelines with `activation_checkpointing` by the lists of their schedules, where C "
        "stands before the receive of the gradient, and by lists where it stands behind it, in the same processes, in "
        "turns of six mini-batches; seven pairs. A ratio is that of the two blocks of a pair: below 1, C before the "
        "gradient is faster. Both end in the same weights, bit for bit.",
        "",
        *_pairs(result, "before", "after"),
        "",
    ]


SECTIONS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "schedules": schedules,
    "engines": engines,
    "split_backward": split_backward,
    "plain_pipelines": plain_pipelines,
    "recomputation": recomputation,
    "laws": laws,
    "uneven": uneven,
}
"""Each result by its file's name, in the page's order."""
