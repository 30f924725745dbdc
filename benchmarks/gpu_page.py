"""The page docs/gpu_measured.md, from published figures."""

from __future__ import annotations

from typing import Any

Figures = dict[str, Any]
NETWORKS = {
    "mlp": "MLP, eight layers of 4,096, 1,024 samples",
    "resnet": "ResNet of 18 layers, 256 pictures of 32 x 32",
    "gpt": "GPT, 12 layers of 768, 16 texts of 512 bytes",
}


def page(measured: Figures) -> str:
    """
    Args:
        measured: by `benchmarks/gpu.py`.
    """
    return "\n".join(
        [
            "# On a GPU",
            "",
            "Three networks on one GPU: how long a mini-batch takes by each method, how much memory it needs, and how "
            "right the plan is. Nothing was measured on several GPUs. Written by `make publish` from `python -m "
            f"benchmarks.gpu` on one {measured['device']}, with torch "
            f"{measured['torch']} and one thread a process. Runs have 120 mini-batches; the first ten do not count. "
            f"{_sessions(measured['rows'])}Ways on two stages have both stages on this one "
            "GPU (`GPU: 0.5`), so they show that it works and what it costs, not what a second GPU brings.",
            "",
            "`predicted` is what the run said before it trained, from components that it measured on the GPU; "
            "`counted` is what `alray plan --on` said, which [measures "
            "nothing](predictions.md#machines-that-you-do-not-have). "
            "Both are over what was measured; of memory there is one figure for each stage.",
            "",
            "| network | numbers | way | step, ms | predicted | counted | memory, GB | predicted |",
            "|---|---|---|---:|---:|---:|---:|---:|",
            *map(_row, measured["rows"]),
            "",
            "- Counted times come out right for the GPT and for the MLP in float32. The ResNet took three times as "
            "long, probably because one processor core could not give the GPU its work fast enough, and the MLP in "
            "bf16 four times.",
            "- Where two stages share a GPU, the plan gives each of them a whole one, so it can be too short.",
            "- `decoupled_greedy` took less time than backpropagation for the MLP in float32, and more in bf16 and for "
            "the ResNet.",
            "- The same network ends in the same weights on one stage and on two, with local losses: "
            f"{_equal(measured['rows'])}.{_again(measured['rows'])}",
            f"- A process takes {measured['besides_tensors_bytes'] / 1e9:.2f} GB of this GPU besides its tensors: "
            "CUDA's context, kernels, and workspaces of cuBLAS and cuDNN. Plans leave 1 GB for that.",
            "",
        ]
    )


def _row(row: Figures) -> str:
    sessions = [row, *row["again"]]
    counted = f"{row['counted_s'] / row['step_s']:.2f}" if "counted_s" in row else ""
    memory = list(zip(row["memory_bytes"], row["predicted_memory_bytes"], strict=True))
    cells = [
        NETWORKS[row["network"]],
        row["precision"],
        row["way"],
        ", ".join(f"{1e3 * each['step_s']:.1f}" for each in sessions),
        ", ".join(f"{each['predicted_s'] / each['step_s']:.2f}" for each in sessions),
        counted,
        ", ".join(f"{held / 1e9:.2f}" for held, _ in memory),
        ", ".join(f"{predicted / held:.2f}" for held, predicted in memory),
    ]
    return f"| {' | '.join(cells)} |"


def _equal(rows: list[Figures]) -> str:
    """Which networks have one hash for local losses on one stage and on two."""
    hashes: dict[tuple[str, str], set[str]] = {}
    ways: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["way"].startswith("decoupled_greedy"):
            key = (row["network"], row["precision"])
            hashes.setdefault(key, set()).add(row["weights_sha256"])
            ways[key] = ways.get(key, 0) + 1
    compared = [key for key, count in ways.items() if count > 1]
    equal = [f"{network} in {precision}" for network, precision in compared if len(hashes[network, precision]) == 1]
    return f"{len(equal)} of {len(compared)} ({', '.join(equal)})"


def _sessions(rows: list[Figures]) -> str:
    """What several numbers in a cell are."""
    most = 1 + max(len(row["again"]) for row in rows)
    return f"Where there are several numbers, each is of one session: up to {most}. " if most > 1 else ""


def _again(rows: list[Figures]) -> str:
    """How many ways that were run in several sessions have one hash."""
    several = [row for row in rows if row["again"]]
    if not several:
        return ""
    equal = [row for row in several if {each["weights_sha256"] for each in row["again"]} == {row["weights_sha256"]}]
    return f" It ends in the same weights in all sessions: {len(equal)} of {len(several)} ways."
