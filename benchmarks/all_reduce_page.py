"""The page docs/all_reduce.md, from published figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from alray.config.sections.all_reduce import ALL_REDUCES
from alray.core.parts import names_of
from alray.planning.prediction.all_reduce import LinkCost
from alray.runtime.channel.all_reduce import all_reduce_class
from benchmarks.all_reduce_accuracy import OF_GRADIENTS


def page(result: dict[str, Any]) -> str:
    """The whole page as text."""
    lines = [
        "# All-reduces and compressions",
        "",
        "Measured by `make all-reduce`, written by `make publish` from `benchmarks/results/all_reduce.json`: "
        f"one process of one thread a rank, over loopback on one machine of {result['cores']} cores, "
        f"{result['took_s'] / 60:.1f} minutes in all. Seconds are those of the slowest rank, the median of repeats. "
        "Where there are more ranks than cores they take turns, so compare figures of one column; between machines of "
        "a cluster, bytes weigh more and additions less.",
        "",
        *_algorithms(),
        *_links(result),
        *_times(result),
        *_bytes(result),
        *_compressions(result),
        *_ddp(result),
        *_accuracy(result),
    ]
    return "\n".join(lines)


def _algorithms() -> list[str]:
    return [
        "## What there is",
        "",
        "`replicas.all_reduce` is one of these; n ranks, m bytes, latency a of a message, b seconds a byte. All end in "
        "the same bits on every rank. This includes gloo: each part is added up on one rank, and that result "
        "is sent on.",
        "",
        "| `all_reduce` | how | cost |",
        "|---|---|---|",
        "| `backend` | that of the process group: gloo's ring, or what NCCL chooses | as `ring` |",
        "| `ring` | n parts go round, one addition at each rank, then go round complete | 2(n-1) a + 2m b (n-1)/n |",
        "| `halving_doubling` | partners exchange halves at half the distance each time, then the way back; ranks "
        "beyond a power of two are folded in before and out after, for 2(a + m b) | 2 log2(n) a + 2m b (n-1)/n |",
        "| `tree` | a binomial tree up to rank 0 and down again | 2 log2(n) (a + m b) |",
        "| `star` | a parameter server on rank 0 | 2(n-1) (a + m b) |",
        "",
        "`replicas.compression` goes over any of them.",
        "",
        "| `compression` | what is sent | kept for the next step |",
        "|---|---|---|",
        "| `none` | the gradients | nothing |",
        "| `fp16`, `bf16` | the gradients rounded to 16 bits, and added up in them | nothing |",
        "| `powersgd` | two all-reduces: the thin matrix P with what is not compressed, then Q | Q, and the error |",
        "| `top_k` | each rank's largest as indices (4 bytes) and values. They differ from rank to rank, so nothing is "
        "added up on the way: they are gathered over the routes of the all-reduce, and added up on every rank | the "
        "error |",
        "",
    ]


def _links(result: dict[str, Any]) -> list[str]:
    lines = [
        "## The link",
        "",
        "a and b are measured in this run, for each number of ranks: one step in which all ranks send to their right "
        "neighbour at once, with 1 byte and with 8 MiB. They are not fitted to the times below.",
        "",
        "| ranks | a, µs | 1/b, GB/s a rank |",
        "|---|---|---|",
    ]
    for entry in result["links"]:
        rate = f"{1e-9 / entry['s_per_byte']:.2f}" if entry["s_per_byte"] > 0 else "-"
        lines.append(f"| {entry['ranks']} | {1e6 * entry['latency_s']:.0f} | {rate} |")
    return [*lines, ""]


def _times(result: dict[str, Any]) -> list[str]:
    lines = [
        "## Milliseconds without compression",
        "",
        "Measured, and what the cost model says with this run's a and b.",
        "",
    ]
    ranks = _all(result["cells"], "ranks")
    ratios: dict[str, list[float]] = {name: [] for name in names_of("all_reduces")}
    for nbytes in _all(result["cells"], "nbytes"):
        lines += [f"{_size(nbytes)}:", "", _row("`all_reduce`", (f"{n} ranks" for n in ranks)), _rule(len(ranks) + 1)]
        for name in names_of("all_reduces"):
            figures = []
            for n in ranks:
                measured = _cell(result, n, name, "none", nbytes)["seconds"]
                predicted = all_reduce_class(ALL_REDUCES.section(name)).seconds(n, nbytes, _link(result, n))
                ratios[name].append(predicted / measured)
                figures.append(f"{_ms(measured)} ({_ms(predicted)})")
            lines.append(_row(f"`{name}`", figures))
        lines.append("")
    said = ", ".join(f"`{name}` {median(values):.2f}" for name, values in ratios.items())
    return [
        *lines,
        f"Predicted over measured, medians over all sizes and ranks: {said}. The model counts no additions and no "
        "copies, and takes every message to have as much of the machine as in the step from which a and b come, in "
        "which all ranks send.",
        "",
    ]


def _bytes(result: dict[str, Any]) -> list[str]:
    ranks = _all(result["cells"], "ranks")
    nbytes = _all(result["cells"], "nbytes")[-1]
    lines = [
        "## Bytes sent by the rank that sends most",
        "",
        f"Of {_size(nbytes)}, in multiples of it; other sizes are alike. The backend does not tell: its figures are a "
        "ring's.",
        "",
        _row("`all_reduce`", (f"{n} ranks" for n in ranks)),
        _rule(len(ranks) + 1),
    ]
    for name in names_of("all_reduces"):
        sent = (_cell(result, n, name, "none", nbytes)["bytes_sent"] / nbytes for n in ranks)
        lines.append(_row(f"`{name}`", (f"{value:.2f}" for value in sent)))
    return [*lines, ""]


def _compressions(result: dict[str, Any]) -> list[str]:
    compressed = [cell for cell in result["cells"] if cell["compression"] != "none"]
    kinds = ["none", *dict.fromkeys(cell["compression"] for cell in compressed)]
    missing = [f"`{kind}`" for kind in OF_GRADIENTS if kind not in kinds]
    lines = [
        "## Milliseconds and bytes with each compression",
        "",
        "Of one square matrix, the best there is for PowerSGD (rank 2); top-k sends 1 %. Compressing is part of the "
        "time. Bytes are those of the rank that sends most over a ring and over a star."
        + (f" Not measured yet, here and for the accuracy: {', '.join(missing)}." if missing else ""),
        "",
    ]
    for n in _all(compressed, "ranks"):
        columns = [f"`{name}`" for name in names_of("all_reduces")] + ["bytes, ring", "bytes, star"]
        lines += [f"{n} ranks:", "", _row("size, `compression`", columns), _rule(len(columns) + 1)]
        for nbytes in _all(compressed, "nbytes"):
            for kind in kinds:
                figures = [_ms(_cell(result, n, name, kind, nbytes)["seconds"]) for name in names_of("all_reduces")]
                figures += [_size(_cell(result, n, name, kind, nbytes)["bytes_sent"]) for name in ("ring", "star")]
                lines.append(_row(f"{_size(nbytes)}, `{kind}`", figures))
        lines.append("")
    return lines


def _ddp(result: dict[str, Any]) -> list[str]:
    compared = [f"`{name}`" for name in result["ddp"][0]["same_gradient"]]
    lines = [
        "## Compared with DDP",
        "",
        "Milliseconds of forward and backward of a module with one parameter of that size: without replicas, in "
        "torch's DistributedDataParallel, and followed by alray's reduction over the backend and over the ring. "
        + (
            f"With {' and '.join(compared)} the gradient is that of DDP."
            if all(all(entry["same_gradient"].values()) for entry in result["ddp"])
            else "The gradients differ: see the results."
        ),
        "",
        "| ranks | size | alone | DDP | alray, `backend` | alray, `ring` | DDP / `backend` | DDP / `ring` |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in result["ddp"]:
        figures = [_ms(entry[key]) for key in ("plain_s", "ddp_s", "backend_s", "ring_s")]
        ratios = [f"{entry['ddp_s'] / entry[key]:.2f}" for key in ("backend_s", "ring_s")]
        lines.append(_row(str(entry["ranks"]), [_size(entry["nbytes"]), *figures, *ratios]))
    return [*lines, ""]


def _accuracy(result: dict[str, Any]) -> list[str]:
    entries = result["accuracy"]
    lines = [
        "## Accuracy with each compression",
        "",
        f"A network of three layers on the bundled digits (64 features, 10 classes), {entries[0]['ranks']} ranks, "
        f"mini-batches of 64, {entries[0]['epochs']} epochs of SGD with momentum, over a ring: test accuracy of "
        f"{len(entries[0]['accuracies'])} seeds, and the bytes a rank sends a step. "
        + (
            "The ranks' weights are the same bits in every run."
            if all(entry["same_bits"] for entry in entries)
            else "The ranks' weights differ: see the results."
        ),
        "",
        "| `compression` | settings | accuracy, mean | each seed | bytes a step | of `none` |",
        "|---|---|---|---|---|---|",
    ]
    whole = entries[0]["bytes_per_step"]
    for entry in entries:
        settings = ", ".join(f"{key} {value}" for key, value in entry["settings"].items()) or "-"
        seeds = ", ".join(f"{100 * value:.1f}" for value in entry["accuracies"])
        figures = [settings, f"**{100 * entry['accuracy']:.1f} %**", seeds, _size(entry["bytes_per_step"])]
        lines.append(_row(f"`{entry['compression']}`", [*figures, f"{100 * entry['bytes_per_step'] / whole:.1f} %"]))
    return [*lines, ""]


def _all(entries: Iterable[dict[str, Any]], key: str) -> list[Any]:
    return list(dict.fromkeys(entry[key] for entry in entries))


def _cell(result: dict[str, Any], ranks: int, name: str, compression: str, nbytes: int) -> dict[str, Any]:
    wanted = (ranks, name, compression, nbytes)
    keys = ("ranks", "all_reduce", "compression", "nbytes")
    return next(cell for cell in result["cells"] if tuple(cell[key] for key in keys) == wanted)


def _link(result: dict[str, Any], ranks: int) -> LinkCost:
    entry = next(entry for entry in result["links"] if entry["ranks"] == ranks)
    return LinkCost(entry["latency_s"], entry["s_per_byte"])


def _row(name: str, figures: Iterable[str]) -> str:
    return f"| {' | '.join([name, *figures])} |"


def _rule(columns: int) -> str:
    return "|" + "---|" * columns


def _ms(seconds: float) -> str:
    """Three digits."""
    ms = 1e3 * seconds
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


def _size(nbytes: float, units: Sequence[str] = ("B", "KiB", "MiB")) -> str:
    for unit in units[:-1]:
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} {units[-1]}"
