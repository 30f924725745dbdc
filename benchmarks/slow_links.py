"""1F1B and streamed local losses over a slow link, with compressed messages and without.

    python -m benchmarks.slow_links [--repeats N] [key=value ...]     a quarter of an hour, alone on two processors

The slow link is the one at which 1F1B has lost 80 % of its throughput on a fast one; it is looked for first, and both
have the same latency. Then all ways run over both links, in each repeat in one order and in the other, as users run
them. Prints a table for docs/crossover.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.runs import Runner, described, settings, summary_of, write_results

SPEC = Path(__file__).with_name("slow_links.yaml")
LATENCY = "1 ms"
FAST_BITS_PER_S = 1e10
LOST = 0.8
PIPELINE = ("method={kind: backpropagation}", "pipeline.schedule=1f1b", "pipeline.micro_batches=4")
INT4 = "pipeline.messages={compression: int4}"
WAYS: dict[str, tuple[str, ...]] = {
    "1F1B": PIPELINE,
    "1F1B, int4": (*PIPELINE, INT4),
    "streamed DGL": (),
    "streamed DGL, int4": (INT4,),
}
_KEPT = ("step_time_s", "predicted_step_time_s", "bytes_sent", "uncompressed_bytes", "weights_sha256")
_TRIES = 6
_NEAR = 1.1  # a link is taken that costs at most this much more than it has to


def link(bits_per_s: float) -> str:
    return f"pipeline.links=[{{bandwidth: {bits_per_s:.0f} bit/s, latency: {LATENCY}}}]"


def slow_link(*overrides: str, run: Runner) -> float:
    """The bandwidth, in bit/s, at which 1F1B takes five times as long as on the fast link, or little more.

    The time that it takes longer is in proportion to the time of its messages.
    """
    fast = run(SPEC, *PIPELINE, link(FAST_BITS_PER_S), *overrides)
    wanted = 1 / (1 - LOST)
    sent_bits = 8 * sum(fast["bytes_sent"].values()) / fast["steps"]
    bits_per_s: float = sent_bits / (wanted - 1) / fast["step_time_s"]
    for _ in range(_TRIES):
        slow = run(SPEC, *PIPELINE, link(bits_per_s), *overrides)
        ratio = slow["step_time_s"] / fast["step_time_s"]
        print(f"{bits_per_s / 1e6:.1f} Mbit/s: 1F1B takes {ratio:.2f} times as long", flush=True)  # noqa: T201
        if wanted <= ratio <= wanted * _NEAR:
            return bits_per_s
        bits_per_s *= (ratio - 1) / (wanted * (1 + _NEAR) / 2 - 1)
    raise SystemExit(f"no bandwidth was found at which 1F1B takes {wanted:.0f} times as long")


def measure(*overrides: str, repeats: int, run: Runner = summary_of) -> dict[str, Any]:
    """The runs of all ways over both links, and what each way loses."""
    bits_per_s = {"fast": FAST_BITS_PER_S, "slow": slow_link(*overrides, run=run)}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {name: {"fast": [], "slow": []} for name in WAYS}
    for _ in range(repeats):
        for names in (list(WAYS), list(reversed(WAYS))):
            for name in names:
                for speed in ("fast", "slow"):
                    summary = run(SPEC, *WAYS[name], link(bits_per_s[speed]), *overrides)
                    runs[name][speed].append({key: summary[key] for key in _KEPT})
                    print(f"{name}, {speed}: {described(runs[name][speed][-1])}", flush=True)  # noqa: T201
    plain_fast_s = median(_steps(runs["streamed DGL"]["fast"]))
    return {
        "spec": SPEC.name,
        "overrides": list(overrides),
        "slow_bits_per_s": bits_per_s["slow"],
        "latency": LATENCY,
        "runs": runs,
        "ways": {name: _conclusions(of_way, plain_fast_s) for name, of_way in runs.items()},
    }


def _steps(runs: Sequence[dict[str, Any]], key: str = "step_time_s") -> list[float]:
    return [each[key] for each in runs]


def _conclusions(of_way: dict[str, list[dict[str, Any]]], plain_fast_s: float) -> dict[str, Any]:
    """
    over_fast: the step over the slow link divided by the own one over the fast link, turn by turn.
    over_plain: the same divided by the median step of streamed DGL without compression over the fast link.
    sent_share: bytes sent, of those without compression.
    """
    slow, fast = _steps(of_way["slow"]), _steps(of_way["fast"])
    first = of_way["slow"][0]
    whole = first["uncompressed_bytes"] or first["bytes_sent"]
    return {
        "fast_s": median(fast),
        "slow_s": median(slow),
        "predicted_fast_s": median(_steps(of_way["fast"], "predicted_step_time_s")),
        "predicted_slow_s": median(_steps(of_way["slow"], "predicted_step_time_s")),
        "over_fast": [own / other for own, other in zip(slow, fast, strict=True)],
        "over_plain": [own / plain_fast_s for own in slow],
        "sent_share": sum(first["bytes_sent"].values()) / sum(whole.values()),
        "same_bits": len({run["weights_sha256"] for runs in of_way.values() for run in runs}) == 1,
    }


def table(found: dict[str, Any]) -> str:
    """The figures as a table of docs/crossover.md. Times are milliseconds, measured and predicted."""
    lines = [
        f"The slow link has {found['slow_bits_per_s'] / 1e6:.1f} Mbit/s and {found['latency']}.",
        "",
        "| | fast link | predicted | slow link | predicted | slow over fast | over plain DGL, fast | bytes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, way in found["ways"].items():
        times = (way["fast_s"], way["predicted_fast_s"], way["slow_s"], way["predicted_slow_s"])
        over = [
            f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
            for ratios in (way["over_fast"], way["over_plain"])
        ]
        cells = [name, *(f"{1e3 * seconds:.1f}" for seconds in times), *over, f"1/{1 / way['sent_share']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    given = settings(__doc__, repeats=2)
    found = measure(*given.overrides, repeats=given.repeats)
    write_results("slow_links", found)
    print(table(found))  # noqa: T201


if __name__ == "__main__":
    main()
