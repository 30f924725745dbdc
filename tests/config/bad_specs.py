"""Specs with something wrong, each with the lines and keys at which it is refused.

`tests/test_messages.py` checks them.
"""

from __future__ import annotations

from typing import NamedTuple

from .conftest import SMALL


class BadSpec(NamedTuple):
    """A wrong spec. `change`: what is wrong, in short. `places`: a line (or `command line`) and a key a problem."""

    change: str
    text: str
    overrides: tuple[str, ...]
    places: tuple[str, ...]


def bad(*places: str, overrides: tuple[str, ...] = (), **entries: str | None) -> BadSpec:
    """The small spec with other entries, each after its key; None leaves it out. `first`, `second`: the components."""
    change = "; ".join([*(f"{key}: {value}" for key, value in entries.items()), *overrides])
    lines = []
    component = iter(("first", "second"))
    for line in SMALL.splitlines():
        key, separator, value = line.partition("- " if line.startswith("    -") else ": ")
        value = entries.pop(next(component) if separator == "- " else key, value)
        lines += [] if value is None else [f"{key}{separator}{value}"]
    lines += [f"{key}: {value}" for key, value in entries.items()]
    return BadSpec(change, "\n".join(lines) + "\n", overrides, places)


def no_spec(*places: str, text: str) -> BadSpec:
    """A whole text that is refused before its keys are looked at."""
    return BadSpec(repr(text), text, (), places)


def no_keys(*places: str, text: str) -> BadSpec:
    """A whole text that lacks all required keys, too."""
    return no_spec("name", "data", "model", "run", *places, text=text)


BAD_SPECS = (
    # Values of one key.
    bad("6 model.components[1].pol", second="{block: vgg, channels: [8], pol: true}"),
    bad("6 model.components[1].chanels", second="{block: vgg, chanels: [8], pool: true}"),
    bad("10 run.foo", run="{epochs: 1, foo: 2}"),
    bad("6 model.components[1].block", second="{block: vg, channels: [8], pool: true}"),
    bad("6 model.components[1].block", second="{channels: [8], pool: true}"),
    bad("6 model.components[1].block", second="{block: 7, channels: [8], pool: true}"),
    bad("6 model.components[1].block", second="{block: 'python:Gated'}"),
    bad("6 model.components[1].x", second="{block: 'python:a.B', x: [.nan]}"),
    bad("2 data.source", data="{source: digitz}"),
    bad("7 method.kind", method="{kind: hebbian}"),
    bad("7 method", method="7"),
    bad("7 method.kind", method="hebbian"),
    bad("7 method.kind", method="backprop", pipeline="{}"),
    bad("2 data.source", "2 data.train", data="{source: csv}"),
    bad("6 model.components[1].block", "6 model.components[1].channels", second="{block: conv}"),
    bad("7 method.kind", method="bp", pipeline="{}"),
    bad("7 method.kind", method="{kind: SCPL, temperature: 1}"),
    bad("8 optimizer.lr", optimizer="{kind: sgd}"),
    bad("8 optimizer.lr", optimizer="{lr: abc}"),
    bad("8 optimizer.lr", optimizer="{lr: '3'}"),
    bad("8 optimizer.lr", optimizer="{lr: .nan}"),
    bad("8 optimizer.lr", optimizer="{lr: 0}"),
    bad("8 optimizer.weight_decay", optimizer="{weight_decay: -1}"),
    bad("8 optimizer.betas[1]", optimizer="{betas: [0.9, 1]}"),
    bad("8 optimizer.betas", optimizer="{betas: [0.9]}"),
    bad("8 optimizer.betas", optimizer="{betas: [0, 0, 0]}"),
    bad("8 optimizer.betas", optimizer="{betas: 1}"),
    bad("9 pipeline.stages", pipeline="{stages: abc}"),
    bad("9 pipeline.stages", pipeline="{stages: 2.0}"),
    bad("9 pipeline.stages", pipeline="{stages: true}"),
    bad("9 pipeline.stages", pipeline="{stages: [2]}"),
    bad("9 pipeline.schedule", pipeline="{schedule: streamd}"),
    bad("9 pipeline.partition", pipeline="{partition: even}"),
    bad("9 pipeline.partition[1]", pipeline="{partition: [2, 0]}"),
    bad("9 pipeline.partition", pipeline="{partition: []}"),
    bad("9 pipeline", pipeline="3"),
    bad("1 name", name="a/b"),
    bad("1 name", name="7"),
    bad("name", seed="1", name=None),
    bad("11 version", version="2"),
    bad("11 version", version="9223372036854775808"),
    bad("11 seed", seed="-1"),
    bad("2 data.root", data="{source: torchvision, dataset: MNIST, root: 7}"),
    bad("2 data.root", data="{source: torchvision, dataset: MNIST, root: ''}"),
    bad("2 data.download", data="{source: torchvision, dataset: MNIST, root: x, download: 1}"),
    bad("2 data.validation_fraction", data="{source: digits, validation_fraction: 1}"),
    bad("2 data.train_fraction", data="{source: digits, train_fraction: 1.5}"),
    bad("10 run", run="{}"),
    bad("10 run", run="{epochs: 1, steps: 2}"),
    bad("10 run.evaluate_every", run="{epochs: 1, evaluate_every: 3 weeks}"),
    bad("10 run.evaluate_every", run="{epochs: 1, evaluate_every: 5}"),
    bad("10 run.stop_at", run="{epochs: 1, stop_at: {metric: test_accuracy}}"),
    bad("10 run.stop_at", run="{epochs: 1, stop_at: {above: 0.9, below: 0.1}}"),
    bad("11 resources.device", resources="{device: gpu}"),
    bad("11 resources.per_stage", resources="{per_stage: 2}"),
    bad("11 resources.labels", resources="{labels: 2}"),
    bad("7 method.head", method="{kind: backpropagation, head: big}", pipeline="{}"),
    bad("7 method.debiased", method="{kind: supervised_contrastive, debiased: true}"),
    bad("7 method.debiased", method="{kind: supervised_contrastive, debiased: 0}"),
    bad("7 method.debiased", method="{kind: supervised_contrastive, debiased: 1}"),
    bad("7 method.debiased", method="{kind: supervised_contrastive, debiased: .nan}"),
    bad("7 method.temperature", method="{kind: supervised_contrastive, temperature: 0}"),
    bad("7 method.projection_dim", method="{kind: supervised_contrastive, projection_dim: 0}"),
    bad("10 run.evaluate_every", run="{epochs: 1, evaluate_every: 0 steps}"),
    bad("10 run.evaluate_every", run="{epochs: 1, evaluate_every: 1.5 steps}"),
    bad("6 model.components[1].block", second="{block: 'python:a..B'}"),
    bad("6 model.components[1].block", second="{block: 'python:a.class'}"),
    # Blocks.
    bad("5 model.components[0].channels", first="{block: stem, channels: 0}"),
    bad("5 model.components[0].layers", first="{block: residual, channels: 4, layers: 0}"),
    bad("5 model.components[0].shortcut", first="{block: residual, channels: 4, layers: 1, shortcut: 5x5}"),
    bad("5 model.components[0].layer", first="{block: lstm, hidden: 4, layer: 2}"),
    bad("5 model.components[0].vectors", first="{block: embedding, dim: 3, vectors: 5}"),
    bad("5 model.components[0].dropout", first="{block: transformer, heads: 2, feedforward: 4, dropout: 1.0}"),
    bad("5 model.components[0].heads", first="{block: transformer, dim: 10, heads: 3, feedforward: 4}"),
    bad("5 model.components[0].widths", first="{block: mlp, widths: []}"),
    bad("5 model.components[0].activation", first="{block: linear, width: 3, activation: swish}"),
    # Replicas.
    bad("11 replicas.count", replicas="{count: 0}"),
    bad("11 replicas.all_reduce", replicas="{all_reduce: rings}"),
    bad("11 replicas.compression.kind", replicas="{compression: fp17}"),
    bad("11 replicas.compression", replicas="{compression: 7}"),
    bad("11 replicas.compression.rank", replicas="{compression: {kind: powersgd, rank: 0}}"),
    bad("11 replicas.compression.fraction", replicas="{compression: {kind: top_k, fraction: 0}}"),
    bad("11 replicas.compression.rank", replicas="{compression: {kind: fp16, rank: 2}}"),
    bad("11 replicas.compression.bits", replicas="{compression: {kind: qsgd, bits: 3}}"),
    bad("11 replicas.compression.bucket", replicas="{compression: {kind: qsgd, bucket: 0}}"),
    bad("11 replicas.synchronise", replicas="{synchronise: never}"),
    bad("11 replicas.synchronise.average_every", replicas="{synchronise: {average_every: 1 epoch}}"),
    bad("11 replicas.synchronise.average_every", replicas="{synchronise: {average_every: 8}}"),
    bad("11 replicas.disturbance.factor", replicas="{disturbance: {workers: [0], factor: 0.5, epochs: [1, 2]}}"),
    bad("11 replicas.disturbance", replicas="{disturbance: {workers: [0], factor: 2, epochs: [3, 2]}}"),
    bad("11 replicas.disturbance", replicas="{disturbance: {workers: [0], epochs: [1, 2]}}"),
    bad("11 replicas.disturbance", replicas="{disturbance: {workers: [0], added_s: [3, 2], epochs: [1, 2]}}"),
    bad("11 replicas.disturbance.epochs[0]", replicas="{disturbance: {workers: [0], factor: 2, epochs: [0, 2]}}"),
    bad("11 replicas.disturbance", replicas="{disturbance: {kind: random, factor: 2, least_epochs: 30}}"),
    bad("11 replicas.shares[1]", replicas="{shares: [32, 0, 32]}"),
    # Images.
    bad("2 data.image_size", data="{source: synthetic, image_size: [8]}"),
    bad("2 data.image_size", data="{source: synthetic, image_size: [8, 8, 8]}"),
    bad("2 data.image_size[1]", data="{source: synthetic, image_size: [8, 0]}"),
    bad("2 data.image_size", data="{source: synthetic, image_size: large}"),
    bad("2 data.normalise.deviation[0]", data="{source: digits, normalise: {mean: [1], deviation: [0]}}"),
    bad("2 data.normalise.deviation", data="{source: digits, normalise: {mean: [1]}}"),
    bad("2 data.dataset", data="{source: torchvision, dataset: CIFAR11, root: a}"),
    bad("2 data.image_size", data="{source: torchvision, dataset: Food101, root: a}"),
    bad(
        "2 data.validation_fraction",
        data="{source: image_folder, train: a, validation: b, validation_fraction: 0.1, image_size: 8}",
    ),
    bad("2 data.assume.samples", data="{source: digits, assume: {samples: 0}}"),
    bad("2 data.assume.shape", data="{source: digits, assume: {shape: []}}"),
    # Text.
    bad("2 data.augment", data="{source: docstrings, augment: strong}"),
    bad("2 data.image_size", data="{source: docstrings, image_size: 32}"),
    bad("2 data.normalise", data="{source: docstrings, normalise: {mean: [1], deviation: [1]}}"),
    bad("2 data", data="{source: huggingface}"),
    bad("2 data", data="{source: huggingface, dataset: a, path: b}"),
    bad("2 data", data="{source: huggingface_images, image_size: 8}"),
    bad("2 data.image_size", data="{source: huggingface_images, dataset: a}"),
    bad("2 data.text.tokenizer", data="{source: docstrings, text: {tokenizer: ''}}"),
    bad("2 data.text.vocabulary_size", data="{source: docstrings, text: {vocabulary_size: 2}}"),
    bad("2 data.text.max_tokens", data="{source: docstrings, text: {max_tokens: 0}}"),
    bad("2 data.text", data="{source: digits, text: {max_tokens: 3}}"),
    bad("2 data.train", data="{source: text_csv}"),
    bad("2 data.label_column", data="{source: text_csv, train: a, label_column: 1.5}"),
    bad("2 data.header", data="{source: text_csv, train: a, header: maybe}"),
    bad("2 data.header", data="{source: text_csv, train: a, header: false, text_columns: review}"),
    bad("2 data.text_columns", data="{source: text_csv, train: a, text_columns: [a, b], label_column: a}"),
    bad("2 data.header", data="{source: table, train: a, header: false, columns: review}"),
    bad("2 data.columns", data="{source: table, train: a, columns: [a, b], label_column: a}"),
    bad("2 data.image_size", data="{source: table, train: a, image_size: 8}"),
    bad("2 data.validation_fraction", data="{source: table, train: a, validation: b, validation_fraction: 0.2}"),
    bad("2 data.classes", data="{source: text_csv, train: a, classes: [a, a]}"),
    bad("2 data.text", data="{source: 'python:words.Own', text: {}, image_size: 8}"),
    # Checks across keys.
    bad("9 pipeline.partition", pipeline="{partition: [1, 3]}"),
    bad("9 pipeline.partition", pipeline="{partition: [1]}"),
    bad("9 pipeline.partition", pipeline="{stages: 1, partition: [1, 1]}"),
    bad("9 pipeline.stages", pipeline="{stages: 3}"),
    bad("9 pipeline.schedule", pipeline="{schedule: single}"),
    bad("5 model.components[0].block", method="{kind: backpropagation}"),
    bad("9 pipeline.schedule", method="{kind: backpropagation}", pipeline="{schedule: streamed}"),
    bad(
        "8 optimizer.label_lr",
        method="{kind: backpropagation}",
        optimizer="{label_lr: 0.1}",
        pipeline="{stages: 1}",
    ),
    bad("8 optimizer.label_lr", method="{kind: supervised_contrastive}", optimizer="{label_lr: 0.1}"),
    bad("9 pipeline.schedule", method="{kind: supervised_contrastive}", pipeline="{schedule: 1f1b}"),
    bad("8 optimizer.nesterov", optimizer="{kind: sgd, lr: 1, nesterov: true}"),
    bad("9 pipeline.costs", pipeline="{costs: [{forward_s: 1, backward_s: 1, update_s: 0}]}"),
    bad("11 resources.per_stage", resources="{per_stage: [{CPU: 1}]}"),
    bad("11 resources.stage_speed", resources="{stage_speed: [1.0, 0.5, 1.0]}"),
    bad("11 resources.device", resources="{device: cuda, per_stage: [{GPU: 1}, {CPU: 1}]}"),
    bad("10 run.precision", run="{epochs: 1, precision: bfloat16}"),
    bad("10 run.trackers[0].kind", run="{epochs: 1, trackers: [mlfow]}"),
    bad("10 run.trackers[0].kind", run="{epochs: 1, trackers: [{kind: mlflow, project: mine}]}"),
    bad("10 run.trackers[0]", run="{epochs: 1, trackers: [3]}"),
    bad("10 run.trackers", run="{epochs: 1, trackers: mlflow}"),
    bad("10 run.trackers", run="{epochs: 1, trackers: ['python:a.B', 'python:a.B']}"),
    bad("9 pipeline.activation_checkpointing", pipeline="{stages: 2, activation_checkpointing: true}"),
    bad(
        "9 pipeline.activation_checkpointing",
        first="{block: linear, width: 4}",
        second="{block: linear, width: 4}",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, schedule: naive, activation_checkpointing: true}",
    ),
    bad(
        "7 method.deep_supervision",
        first="{block: linear, width: 4}",
        second="{block: linear, width: 4}",
        pipeline="{stages: 2, schedule: gpipe}",
        method="{kind: backpropagation, deep_supervision: 0.5}",
    ),
    bad(
        "10 run.compile",
        first="{block: linear, width: 4}",
        second="{block: linear, width: 4}",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, schedule: zero_bubble}",
        run="{epochs: 1, compile: true}",
    ),
    bad("10 run.stop_at", run="{epochs: 1, evaluate_every: null, stop_at: {metric: test_accuracy, above: 0.9}}"),
    bad("6 model.components[1].pool", second="{block: vgg, channels: [8], pool: true, repeat: 4}"),
    bad(
        "10 run.stop_at.metric",
        data="{source: digits, validation_fraction: 0}",
        run="{epochs: 1, stop_at: {metric: validation_accuracy, above: 0.9}}",
    ),
    bad(
        "10 run.stop_at.patience",
        data="{source: digits, validation_fraction: 0}",
        run="{epochs: 1, stop_at: {patience: 3}}",
    ),
    bad(
        "10 run.stop_at.metric",
        data="{source: image_folder, train: a, image_size: 8}",
        run="{epochs: 1, stop_at: {metric: test_accuracy, above: 0.9}}",
    ),
    bad(
        "10 run.stop_at.metric",
        data="{source: text_csv, train: a}",
        run="{epochs: 1, stop_at: {metric: test_accuracy, above: 0.9}}",
    ),
    bad(
        "10 run.stop_at.metric",
        data="{source: huggingface, path: a, test_split: null}",
        run="{epochs: 1, stop_at: {metric: test_accuracy, above: 0.9}}",
    ),
    bad(
        "9 pipeline.stages",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, schedule: single, micro_batch_norm: accept}",
    ),
    bad(
        "9 pipeline.micro_batches",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, micro_batches: 6, micro_batch_norm: accept}",
    ),
    bad(
        "9 pipeline.micro_batches",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, micro_batches: 1, micro_batch_norm: accept}",
    ),
    bad(
        "9 pipeline.micro_batches",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, schedule: naive, micro_batches: 2, micro_batch_norm: accept}",
    ),
    bad(
        "9 pipeline.micro_batches",
        "9 pipeline.micro_batches",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, schedule: zero_bubble, micro_batches: 5, micro_batch_norm: accept}",
    ),
    bad(
        "8 pipeline.stages",
        "8 pipeline.virtual_stages",
        method="{kind: backpropagation}",
        pipeline="{stages: 1, virtual_stages: 2, schedule: gpipe, micro_batch_norm: accept}",
        second=None,
    ),
    bad(
        "9 pipeline.virtual_stages",
        method="{kind: backpropagation}",
        pipeline="{schedule: interleaved_1f1b, stages: 1, virtual_stages: 1, micro_batch_norm: accept}",
    ),
    bad(
        "9 pipeline.partition",
        method="{kind: backpropagation}",
        pipeline="{schedule: 1f1b, stages: 2, partition: cyclic, micro_batch_norm: accept}",
        second="{block: linear, width: 4, repeat: 3}",
    ),
    bad(
        "9 pipeline.partition",
        pipeline="{stages: 2, partition: cyclic}",
        second="{block: linear, width: 4, repeat: 2}",
    ),
    bad(
        "9 pipeline.virtual_stages",
        pipeline="{stages: 2, partition: cyclic, virtual_stages: 1}",
        second="{block: linear, width: 4, repeat: 3}",
    ),
    bad(
        "9 pipeline.partition",
        method="{kind: backpropagation}",
        pipeline="{schedule: interleaved_1f1b, stages: 2, partition: [1, 1], micro_batch_norm: accept}",
    ),
    bad(
        "2 data.last_batch",
        data="{source: digits, last_batch: keep}",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, schedule: naive}",
    ),
    bad(
        "9 pipeline.micro_batches",
        data="{source: digits, batch_size: 53}",
        method="{kind: backpropagation}",
        pipeline="{stages: 2, micro_batch_norm: accept}",
    ),
    bad("9 pipeline.micro_batches", pipeline="{stages: 2, micro_batches: 2}"),
    bad("9 pipeline.stages", "9 pipeline.schedule", pipeline="{stages: 3, schedule: single}"),
    # Checks across keys, of replicas.
    bad("11 replicas.count", data="{source: digits, batch_size: 4}", replicas="{count: 5}"),
    bad(
        "2 data.last_batch",
        data="{source: digits, batch_size: 323, last_batch: keep}",  # 1,293 for training: the last one has a sample
        replicas="{count: 2}",
    ),
    bad(
        "2 data.last_batch",
        data="{source: synthetic, samples: 11, batch_size: 9, validation_fraction: 0, last_batch: keep}",
        replicas="{count: 4}",
    ),
    bad("11 replicas.shares", "11 replicas.shares", replicas="{count: 3, shares: [32, 31]}"),
    bad("11 replicas.shares", replicas="{count: 2, shares: [30, 34], balance: dynamic_batch_size}"),
    bad(
        "11 replicas.balance",
        method="{kind: backpropagation}",
        pipeline="{schedule: gpipe, stages: 2, micro_batches: 4, micro_batch_norm: accept}",
        replicas="{count: 2, balance: dynamic_batch_size}",
    ),
    bad(
        "11 replicas.shares",
        method="{kind: backpropagation}",
        pipeline="{schedule: gpipe, stages: 2, micro_batches: 4, micro_batch_norm: accept}",
        replicas="{count: 2, shares: [24, 40]}",
    ),
    bad(
        "11 replicas.count",
        method="{kind: backpropagation}",
        pipeline="{schedule: gpipe, stages: 2, micro_batches: 4, micro_batch_norm: accept}",
        replicas="{count: 3}",
    ),
    bad(
        "9 pipeline.micro_batches",
        data="{source: digits, batch_size: 24}",
        method="{kind: backpropagation}",
        pipeline="{schedule: gpipe, stages: 2, micro_batches: 4, micro_batch_norm: accept}",
        replicas="{count: 4}",
    ),
    bad("11 replicas.compression", replicas="{count: 2, synchronise: {average_every: 8 steps}, compression: top_k}"),
    bad("11 replicas.engine", pipeline="{stages: 1}", replicas="{count: 2, engine: ray_train}"),
    bad(
        "11 replicas.engine",
        "11 replicas.engine",
        "11 replicas.engine",
        "11 replicas.engine",
        "11 replicas.engine",
        method="{kind: backpropagation}",
        optimizer="{kind: adam, accumulate: 2}",
        pipeline="{stages: 2, micro_batch_norm: accept}",
        replicas="{count: 2, engine: ray_train, balance: fixed, all_reduce: ring, compression: top_k, "
        "disturbance: {workers: [1], factor: 2, epochs: [1, 1]}}",
    ),
    bad(
        "11 replicas.compression.start_iteration",
        method="{kind: backpropagation}",
        pipeline="{stages: 1}",
        replicas="{count: 2, engine: ray_train, compression: powersgd}",
    ),
    bad(
        "11 replicas.engine",
        data="{source: digits, batch_size: 64, last_batch: keep}",
        method="{kind: backpropagation}",
        pipeline="{stages: 1}",
        replicas="{count: 2, engine: ray_train}",
    ),
    bad(
        "11 replicas.count",
        method="{kind: backpropagation}",
        pipeline="{stages: 1}",
        replicas="{count: 3, engine: ray_train}",
    ),
    bad("11 replicas.sync_batch_norm", replicas="{sync_batch_norm: true}"),
    bad(
        "11 replicas.sync_batch_norm",
        replicas="{count: 2, sync_batch_norm: true, synchronise: {average_every: 8 steps}}",
    ),
    bad(
        "7 method.gather",
        method="{kind: supervised_contrastive, gather: true}",
        replicas="{count: 2, synchronise: {average_every: 8 steps}}",
    ),
    bad(
        "11 replicas.disturbance.workers",
        replicas="{count: 2, disturbance: {workers: [0, 2], factor: 2, epochs: [1, 3]}}",
    ),
    bad("11 lr_schedule.scale_with_batch", lr_schedule="{scale_with_batch: linear}"),
    bad("7 method.label_smoothing", method="{label_smoothing: 0.1, first_label_loss: mse}"),
    bad("8 optimizer.fused", optimizer="{kind: lamb, fused: true}"),
    bad("8 optimizer.fused", optimizer="{kind: muon, fused: true}"),
    bad("8 optimizer.decay", optimizer="{kind: lars, lr: 1, decay: weights}"),
    bad("8 optimizer.decay", optimizer="{kind: adam, decay: biases}"),
    bad("8 optimizer.rate_factors.head", optimizer="{kind: adam, rate_factors: {head: 0}}"),
    bad("8 optimizer.iterations", optimizer="{kind: muon, iterations: 100}"),
    bad("11 lr_schedule.kind", lr_schedule="{kind: rising}"),
    bad("11 lr_schedule.kind", lr_schedule="{kind: one_cycle}"),
    bad("11 lr_schedule.at", lr_schedule="{kind: multi_step, at: []}"),
    bad("11 lr_schedule.at[1]", lr_schedule="{kind: multi_step, at: [1 epoch, 3]}"),
    bad("11 lr_schedule.at[0]", lr_schedule="{kind: multi_step, at: [30 s]}"),
    # Overrides.
    bad("command line optimizer.lrr", overrides=("optimizer.lrr=1",)),
    bad("command line optimiser", overrides=("optimiser.lr=1",)),
    bad("command line optimizer.lr", overrides=("optimizer.lr=abc",)),
    bad("command line", overrides=("lr",)),
    bad("command line", overrides=("=3",)),
    bad("command line", overrides=("a..b=3",)),
    bad(
        "command line seed",
        overrides=(
            "seed.x=1",
            "name=a",
        ),
    ),
    bad("command line name.x", overrides=("name.x=1",)),
    bad("command line model.components.x", overrides=("model.components.x=1",)),
    bad("command line model.components[2].repeat", overrides=("model.components.2.repeat=1",)),
    bad("command line seed", overrides=("seed=[1",)),
    bad(
        "command line seed",
        overrides=(
            "seed=1",
            "seed=2",
        ),
    ),
    bad(
        "command line method",
        overrides=(
            "method.label_dim=3",
            "method=backpropagation",
        ),
    ),
    bad("command line optimizer.kind", overrides=("optimizer.kind=adammw",)),
    bad("command line run.stop_at.patience", overrides=("run.stop_at.patience=0",)),
    bad("command line pipeline.partition", overrides=("pipeline.partition=[1, 2]",)),
    bad(
        "command line optimizer.eps",
        overrides=(
            "optimizer.eps=1",
            "optimizer.kind=sgd",
            "optimizer.lr=1",
        ),
    ),
    bad(
        "9 pipeline.stages",
        "command line seed",
        "command line",
        overrides=(
            "foo",
            "seed=-1",
        ),
        pipeline="{stages: x}",
    ),
    # Several problems are told in the order of the file.
    bad(
        "data",
        "1 name",
        "4 model.components[0].channels[1]",
        "5 model.components[1]",
        "7 optimizer.kind",
        "8 pipeline.in_flight",
        "9 run.epochs",
        name="two words",
        data=None,
        first="{block: vgg, channels: [4, x]}",
        second="5",
        optimizer="{kind: adamm}",
        pipeline="{in_flight: 0}",
        run="{epochs: none}",
    ),
    # Files that are no specs.
    no_keys("2 a", text="a: 1\na: 2"),
    no_spec("3", text="a: 1\n---\nb: 2"),
    no_spec("2", text="a:\n\tb: 1"),
    no_spec("1", text="a: b: c"),
    no_spec("2", text="a: [1\nb: 2"),
    no_spec("1", text="a: [1, , 2]"),
    no_spec("1", text="a: *b"),
    no_spec("2", text="a: 1\nb: \x01"),
    no_spec("1", text='a: "\\U00110000"'),
    no_keys("1 a", text='a: "\\ud800"'),
    no_keys("1 a[0]", "1 a", text="a: &a [*a]"),
    no_keys("1 a", "1 a", text="a: {<<: 3}"),
    no_keys("1", text="{1: 2}"),
    no_keys("1", text="? [a]\n: 3"),
    no_keys("1 a", text="a: !!binary abc"),
    no_keys("1 a", text="a: !mine {b: 1}"),
    no_keys("1 a", text="a: !!int x"),
    no_keys("1 a.x", "1 a", "3 b", text="a: {x: 1, x: 2}\nb: 1\nb: 2\n"),
    no_spec("", text=""),
    no_spec("", text="# only a comment\n---\n~\n"),
    no_spec("1", text="hello"),
    no_spec("1", text="- a\n- b"),
    no_spec("2 study", text="# scaling\nstudy: scaling\nbase: a.yaml\n"),
    no_spec("", text="[" * 102 + "]" * 102),
    no_spec("", text="[" * 2000),
    no_spec("2", text="name: a\nb: \x00"),
)
