"""Small models of transformers, made of random configs: are they cut into parts that compute what the
whole computes, do they train on two stages to the bits of one, and does the original class load what was trained?

    python -m benchmarks.huggingface [CLASS ...]

Nothing is downloaded. transformers must be installed: pip install 'alray[transformers]'.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import alray
from alray.config.loading.load import load_spec
from alray.config.user_code import UserCode
from alray.core.errors import AlrayError
from alray.inference.network import TrainedNetwork, whole_batch
from alray.models.imported.calls import scores_of
from alray.runtime.workload import Workload
from benchmarks.runs import MEASURED, write_results

RESULT = MEASURED / "huggingface.json"
Figures = dict[str, Any]

_WIDTHS = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
_LLAMA = {**_WIDTHS, "vocab_size": 256, "num_key_value_heads": 2}
_BERT = {**_WIDTHS, "vocab_size": 64, "num_labels": 3}
FAMILIES: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"vocab_size": 256, "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 16},
    "LlamaForCausalLM": _LLAMA,
    "Qwen3ForCausalLM": {**_LLAMA, "head_dim": 8},
    "Gemma2ForCausalLM": {**_LLAMA, "head_dim": 8},
    "Gemma3ForCausalLM": {**_LLAMA, "head_dim": 8},
    "MistralForCausalLM": _LLAMA,
    "OPTForCausalLM": {
        "vocab_size": 256,
        "hidden_size": 32,
        "word_embed_proj_dim": 32,
        "ffn_dim": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "max_position_embeddings": 16,
    },
    "GPTNeoXForCausalLM": {**_WIDTHS, "vocab_size": 256},
    "PhiForCausalLM": {**_WIDTHS, "vocab_size": 256},
    "FalconForCausalLM": {"vocab_size": 256, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4},
    "BloomForCausalLM": {"vocab_size": 256, "hidden_size": 32, "n_layer": 4, "n_head": 4},
    "MambaForCausalLM": {"vocab_size": 256, "hidden_size": 32, "state_size": 4, "num_hidden_layers": 4},
    "BertForSequenceClassification": _BERT,
    "RobertaForSequenceClassification": _BERT,
    "DistilBertForSequenceClassification": {
        "vocab_size": 64,
        "dim": 32,
        "hidden_dim": 64,
        "n_layers": 4,
        "n_heads": 4,
        "num_labels": 3,
    },
    "ElectraForSequenceClassification": {**_BERT, "embedding_size": 16},
    "DebertaV2ForSequenceClassification": {
        **_BERT,
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
    },
    "LlamaForSequenceClassification": {**_LLAMA, "vocab_size": 64, "num_labels": 3, "pad_token_id": 0},
    "AlbertForSequenceClassification": {**_BERT, "embedding_size": 16},
    "ViTForImageClassification": {**_WIDTHS, "image_size": 32, "patch_size": 8, "num_labels": 3},
    "DeiTForImageClassification": {**_WIDTHS, "image_size": 32, "patch_size": 8, "num_labels": 3},
    "MobileViTForImageClassification": {
        "image_size": 32,
        "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 16, 16, 24, 24, 32],
        "num_attention_heads": 4,
        "num_labels": 3,
    },
    "SwinForImageClassification": {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
        "num_labels": 3,
    },
    "ConvNextForImageClassification": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_labels": 3},
    "ResNetForImageClassification": {
        "embedding_size": 8,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1, 1, 1, 1],
        "num_labels": 3,
    },
}
"""Classes of transformers, each with the config of a small model."""
METHODS = ("backpropagation", "decoupled_greedy", "associated_learning", "solo")
"""The methods that are tried; solo of language models alone."""
_COST = {"forward_s": 1e-3, "backward_s": 1e-3, "update_s": 1e-3}


def spec_of(name: str, folder: Path, components: int = 4) -> Figures:
    """A run of three mini-batches of four samples, with its data in the folder."""
    spec: Figures = {
        "name": "small",
        "seed": 3,
        "data": _data(name, folder),
        "model": {"from": f"transformers:{name}", "with": FAMILIES[name], "untie": True, "components": components},
        "optimizer": {"kind": "adamw", "lr": 0.001},
        "pipeline": {"costs": [_COST] * components},
        "run": {"steps": 3, "evaluate_every": None, "checkpoint": None},
    }
    if is_of_language(name):
        spec["task"] = {"kind": "next_token"}
    return spec


def is_of_language(name: str) -> bool:
    return name.endswith(("ForCausalLM", "LMHeadModel"))


def _data(name: str, folder: Path) -> Figures:
    common = {"batch_size": 4, "validation_fraction": 0.25}
    if is_of_language(name):
        text = "\n\n".join(f"{number} times {number} is {number * number}, and so on" for number in range(40))
        (folder / "text.txt").write_text(text, encoding="utf-8")
        file = str(folder / "text.txt")
        return {"source": "text", "file": file, "separator": "\n\n", "tokens": "bytes", "context": 12, **common}
    if "Image" in name:
        return {"source": "synthetic", "shape": [3, 32, 32], "classes": 3, "samples": 24, **common}
    words = ("red", "green", "blue")
    rows = [f'{number % 3},"{" ".join([words[number % 3]] * (number % 7 + 1))} is {number}"' for number in range(48)]
    (folder / "train.csv").write_text("\n".join(rows), encoding="utf-8")
    read = {"vocabulary_size": 40, "max_tokens": 12}
    return {"source": "text_csv", "train": str(folder / "train.csv"), "test_fraction": 0.25, "text": read, **common}


def looked_at(name: str, methods: Sequence[str] = METHODS, components: int = 4) -> Figures:
    """What becomes of a model: `refused` with the reason; or how it was cut, and by method whether two stages end in
    the `bits` of one, and whether the class loads what backpropagation trained."""
    with TemporaryDirectory() as folder:
        spec = spec_of(name, Path(folder), components)
        found: Figures = {"class": name}
        try:
            network = Workload.open(load_spec(spec).spec, UserCode(Path(folder))).network  # proves that it is the whole
        except AlrayError as error:
            return {**found, "refused": error.problems[0].message}
        found["components"] = len(network)
        for method in methods:
            if method == "solo" and not is_of_language(name):
                continue
            try:
                found[method] = _trained(spec, method, Path(folder))
            except AlrayError as error:
                found[method] = str(error)
        if found.get("backpropagation") == "bits":
            found["loaded"] = _loaded(name, spec, Path(folder))
    return found


def _trained(spec: Figures, method: str, folder: Path) -> str:
    """`bits` where two stages end in the weights of one, else `others`. Runs of the method stay in the folder."""
    hashes = []
    for stages in (1, 2):
        pipeline = {**spec["pipeline"], "stages": stages}
        if method == "backpropagation":
            pipeline |= {
                "schedule": "1f1b" if stages == 2 else "gpipe",
                "micro_batches": 2,
                "micro_batch_norm": "accept",
            }
        keys = {"pipeline": pipeline, "method": method}
        run = alray.run({**spec, **keys}, inline=True, output=folder / f"{method}-{stages}", progress=False)
        hashes.append(run.summary.weights_sha256)
    return "bits" if hashes[0] == hashes[1] else "others"


@torch.no_grad()
def _loaded(name: str, spec: Figures, folder: Path) -> str:
    """`bits` where the class loads what backpropagation trained and gives the scores of the route, or how far they are
    from these over the largest one; and a run of DGL begins with these weights from the folder."""
    import transformers  # takes long to import; the specs alone need none of it

    alray.load_run(folder / "backpropagation-2").export("pretrained", folder / "saved")
    model = getattr(transformers, name).from_pretrained(folder / "saved").eval()
    network = TrainedNetwork(folder / "backpropagation-2", allow_code=False)
    batch = whole_batch(network.workload.data).inputs(torch.device("cpu"), torch.float32)
    scores = network.route(network.depths[-1])(batch["s"], batch.get("mask"))
    of_class = scores_of(model, batch["s"], batch.get("mask"))
    of_folder = {"from": f"transformers:{folder / 'saved'}", "components": spec["model"]["components"]}
    again = {**spec, "model": of_folder, "method": "decoupled_greedy"}
    begun = Workload.open(load_spec(again).spec, UserCode(folder)).network
    weights = model.state_dict()
    for index in range(len(begun)):
        for key, value in begun.component(index, "cpu").f.body.state_dict().items():
            if not torch.equal(value, weights[key]):
                return f"another `{key}`"
    apart = float((scores - of_class).abs().max() / of_class.abs().max())
    return "bits" if torch.equal(scores, of_class) else f"{apart:.0e}"


def main(names: list[str]) -> None:
    known: dict[str, Figures] = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    for name in names or FAMILIES:
        known[name] = looked_at(name)
        print(json.dumps(known[name]), flush=True)  # noqa: T201
        known = {each: known[each] for each in FAMILIES if each in known}
        write_results("huggingface", known)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
