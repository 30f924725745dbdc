"""The page docs/models.md, from published figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Figures = dict[str, Any]
TARGETS = {"torchvision": 0.95, "timm": 0.90}
ROUNDING = 1e-6
"""The largest difference in float64 that counts as agreement: some models compute in float32 inside."""
_TRAINED = ("trained", "same")
"""How the mini-batch of a method ends where nothing failed."""
LOCAL = {"associated_learning": "AL", "decoupled_greedy": "DGL", "supervised_contrastive": "SCPL"}


PYTHON = """\
## Python in `forward`

Each part runs the model's own `forward`, and computes the steps from its cut to the next one. This is what becomes of
what a `forward` does besides operations on tensors. *cut*: the parts end in the weights and buffers of the whole model
after ten mini-batches, bit for bit. *one component*: it trains by backpropagation on one stage; a second stage is
refused with the reason. *refused*: the error names the line, where it is one of `forward`.
`tests/models/test_python_in_forward.py` and `tests/models/test_cuts.py` have most of them.

| `forward` | becomes |
|---|---|
| computes under `torch.no_grad()`, `inference_mode`, `torch.autocast`, `sdpa_kernel` or another default type | cut |
| calls `torch.utils.checkpoint` without `use_reentrant` | cut, but not inside of what is computed again |
| calls a `torch.autograd.Function` with a special gradient | cut, but not inside of it |
| draws by torch, NumPy or `random` | cut |
| leaves one layer out by chance (LayerDrop) | cut elsewhere |
| leaves any of its layers out by chance | one component |
| chooses or loops by the values of its input: `if x.max() > 1` | cut (1) |
| reads numbers of tensors: `float(self.limit)`, `x.mean().item()` | cut; the numbers travel |
| makes masks of its padding, has several recurrent layers, or skips as a U-Net | cut |
| packs sequences, or needs several activations everywhere | cut by backpropagation alone, where it can be |
| sends rows to experts by an index | cut, or one component where rows are written in place |
| needs more than six tensors after a layer | cut elsewhere |
| fills a cache at its first call | cut |
| counts its calls in a buffer, updates a running mean in place, or assigns it | cut, not between its uses |
| uses a buffer that stays before and after a layer | cut |
| uses a parameter before and after a layer, or has tied weights | cut elsewhere; `model.untie` |
| reads `self.parameters()` of the whole model | one component |
| has one layer with weights | one component |
| has layers with hooks that change inputs or results | cut |
| has `torch.nn.utils.parametrizations`, the old `spectral_norm`, or `BatchNorm` with `momentum=None` | cut |
| writes in place into a tensor with two names, or asks `isinstance(x, torch.Tensor)` | cut |
| counts its calls in an attribute, appends to a list, or keeps its last features | refused: no checkpoint holds it |
| draws from a `torch.Generator` that it made | refused: no checkpoint holds it |
| has layers with the old `torch.nn.utils.weight_norm` | refused: no copy can be made |
| has modules of TorchScript | refused |
| gives a result without a gradient, or no tensor | refused |

(1) A mini-batch that needs more of the parts below than those that were tried ends the run with the name of the layer.
"""


def page(entries: Sequence[Figures], exported: Sequence[Figures], huggingface: Sequence[Figures]) -> str:
    """
    Args:
        entries: those of `benchmarks/models.py`.
        exported: those of `benchmarks/exported.py`.
        huggingface: those of `benchmarks/huggingface.py`.
    """
    lines = [
        "# Imported models",
        "",
        "Measured by `make models`, written by `make publish` from `benchmarks/results`. It shows what "
        "`model: {from: ...}` makes of every classification model of torchvision, and of a small "
        "model of each family of timm. [`model`](network.md#an-imported-model) says how to use it.",
        "",
        "- **cut points**: where the model can be cut, because one tensor alone is needed later. **components**: with "
        "`components: auto`, one for each natural unit.",
        "- **whole**: how far the chain of all components is from the whole model, on two random images in evaluation "
        "and in training, with the gradients of one backward pass. *bits*: everything is equal. Otherwise it is the "
        "largest difference of scores and of gradients, computed in float64 without dropout, over the largest score "
        "and the largest gradient of that parameter. Such models pass on tensors in other strides, as ConvNeXt does: "
        "alray lays out what crosses a boundary row by row. Other strides take other kernels, which round otherwise, "
        "and dropout draws in another order.",
        "- **BP**, **AL, DGL, SCPL**: one mini-batch of four samples, with the model in four components. *bits*: the "
        "three local methods ran on one stage and streamed on two, and both ended in the same weights. Models of "
        "more than 150 million parameters are not trained here: their cells are empty.",
        "",
    ]
    for library in TARGETS:
        of_library = sorted(
            (entry for entry in entries if entry["from"].startswith(f"{library}:")), key=lambda each: each["from"]
        )
        lines += _section(library, of_library) if of_library else [f"## {library}", "", "Not tried yet.", ""]
    return "\n".join([*lines, *_of_transformers(huggingface), PYTHON, *_exported(exported)])


def _of_transformers(entries: Sequence[Figures]) -> list[str]:
    """Models that are cut by their list of layers."""
    lines = [
        "## transformers",
        "",
        "Measured by `make huggingface`, on small models made of configs; nothing was downloaded. They are cut between "
        "their layers, without a trace ([how](network.md#a-model-of-transformers)).",
        "",
        "- **whole**: *bits* if the chain of all components is the whole model: scores in training and in evaluation, "
        "every gradient, buffers, draws, and what each layer gets. alray proves it before a run, or refuses it.",
        "- **BP**, **DGL**, **AL**, **SOLO**: *bits* if three mini-batches end in the same weights on one stage and on "
        "two, BP by 1F1B with two micro-batches. SOLO is for language models.",
        "- **loaded**: *bits* if `from_pretrained` of the class loads what BP trained and "
        "`alray export --format pretrained` wrote, the class gives the scores of the route, and a run of DGL from this "
        "folder begins with its weights. Otherwise how far its scores are from the route's, over the largest one.",
        "",
        "| class | list of layers | components | whole | BP | DGL | AL | SOLO | loaded |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    keys = ("backpropagation", "decoupled_greedy", "associated_learning", "solo", "loaded")
    for entry in entries:
        if "refused" not in entry:
            cells = [f"`{entry['class']}`", f"`{entry['list']}`", str(entry["components"]), "bits"]
            lines.append(f"| {' | '.join([*cells, *(entry.get(key, '') for key in keys)])} |")
    refused = [entry for entry in entries if "refused" in entry]
    return [*lines, "", "Refused:", "", *(f"- `{each['class']}`: {each['refused']}" for each in refused), ""]


def _exported(entries: Sequence[Figures]) -> list[str]:
    """What `alray evaluate` measures, and the same of the exported state dict in the model's class."""
    lines = [
        "## Exported, and used without alray",
        "",
        "Measured by `make exported`. Each network trained for a short time: three epochs of `digits`, or 40 "
        "mini-batches of docstrings. `alray evaluate` measured every depth on the test set. Then "
        "`alray export --format state_dict` wrote its weights, a new object of the class loaded them, and "
        "`benchmarks/plain_readouts.py`, which is plain torch, computed the same "
        "([The weights in your own class](from_pytorch.md#the-weights-in-your-own-class)). **class alone** is the "
        "class without the trained readouts, with what the command says of it. A method that is not listed for a "
        "network has not been measured; `tests/engine/test_exported_networks.py` compares all of them.",
        "",
        "| network | method | `alray evaluate`, by depth | exported, in plain torch | class alone |",
        "|---|---|---|---|---|",
    ]
    for entry in entries:
        evaluated, plain = (
            ", ".join(f"{value:.4f}" for value in entry[key].values()) for key in ("evaluated", "plain")
        )
        said = "predicts as the route" if entry["class_alone"] else "warned"
        lines.append(
            f"| {entry['network']} | {entry['method']} | {evaluated} | {plain} | {entry['class']:.4f}, {said} |"
        )
    largest = max(
        abs(value - entry["plain"][depth]) for entry in entries for depth, value in entry["evaluated"].items()
    )
    return [
        *lines,
        "",
        "Of pictures it is the accuracy, of tokens the cross-entropy in nats. The largest difference between "
        f"`alray evaluate` and plain torch in this table is {largest:.1g}.",
        "",
    ]


def was_tried(entry: Figures) -> bool:
    """Whether a model was looked at, and not only listed."""
    return "with" in entry or "failed" in entry


def works(entry: Figures) -> bool:
    """Whether a model was traced and cut, and nothing that was tried with it failed."""
    trained = entry.get("trained") or {}
    return "places" in entry and not (
        entry.keys() & {"refused", "failed"}
        or any(each not in _TRAINED for each in trained.values())
        or max(entry.get("in_float64", {}).values(), default=0.0) > ROUNDING
    )


def _section(library: str, entries: Sequence[Figures]) -> list[str]:
    tried = [entry for entry in entries if was_tried(entry)]
    right = [entry for entry in tried if works(entry)]
    run = [entry for entry in tried if entry.get("trained")]
    by_every = [entry for entry in run if all(each in _TRAINED for each in entry["trained"].values())]
    what = "models" if library == "torchvision" else "families"
    lines = [f"## {library}", ""]
    if tried:
        lines += [
            f"Of {len(entries)} {what}, {len(tried)} were tried, and **{len(right)}** of these are cut and agree "
            f"with the whole: **{len(right) / len(tried):.0%}** (target: {TARGETS[library]:.0%}). "
            f"{len(by_every)} of them trained by every method.",
            "",
        ]
    family = library == "timm"
    lines += [
        f"|{' family |' if family else ''} model | parameters, millions | image | cut points | components | whole | BP "
        "| AL, DGL, SCPL |",
        f"|{'---|' if family else ''}---|---|---|---|---|---|---|---|",
    ]
    for entry in tried:
        if "places" in entry and "size" in entry:
            name = entry["from"].partition(":")[2]
            cells = [entry["family"]] * family + [f"`{name}`", f"{entry['parameters'] / 1e6:.1f}", str(entry["size"])]
            lines.append(f"| {' | '.join([*cells, str(entry['places']), *_results(entry)])} |")
    refused = [entry for entry in tried if entry.keys() & {"refused", "failed"}]
    if refused:
        lines += ["", "Not used:", ""]
        lines += [
            f"- `{entry['from'].partition(':')[2]}`: {entry.get('refused') or entry['failed']}" for entry in refused
        ]
    failed = [(entry, by, each) for entry in run for by, each in entry["trained"].items()]
    failed = [each for each in failed if each[2] not in _TRAINED]
    if failed:
        lines += ["", "Methods that failed:", ""]
        lines += [f"- `{entry['from'].partition(':')[2]}`, `{by}`: {said}" for entry, by, said in failed]
    opaque = [entry for entry in tried if entry.get("opaque")]
    if opaque:
        lines += ["", "Submodules that cannot be traced, and stay in one piece:", ""]
        lines += [
            f"- `{entry['from'].partition(':')[2]}`: {len(entry['opaque'])}, such as `{entry['opaque'][0]}`"
            for entry in opaque
        ]
    others = [f"`{entry['from'].partition(':')[2]}`" for entry in entries if entry not in tried]
    if others:
        lines += ["", f"Not tried yet: {', '.join(others)}."]
    if further := [entry for entry in tried if entry.get("with")]:
        lines += ["", "Made with further arguments, because their training returns more than scores:", ""]
        lines += [
            f"- `{entry['from'].partition(':')[2]}`: " + ", ".join(f"`{key}`" for key in entry["with"])
            for entry in further
        ]
    return [*lines, ""]


def _results(entry: Figures) -> list[str]:
    whole = entry.get("whole")
    if whole is None:
        agreement = ""
    elif not any(whole.values()):
        agreement = "bits"
    else:
        agreement = f"{max(entry['in_float64'].values()):.0e}"
    trained = entry.get("trained") or {}
    by_bp = {"trained": "trained", None: ""}.get(trained.get("backpropagation"), "no")
    local = [trained[method] for method in LOCAL if method in trained]
    if not local:
        bits = ""
    elif set(local) == {"same"}:
        bits = "bits"
    elif set(local) == {"trained"}:
        bits = "one component"
    else:
        bits = "no"
    return [str(entry["components"]), agreement, by_bp, bits]
