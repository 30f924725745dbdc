"""Use a trained network: accuracy at each depth, a file for other programs, and more training on other stages.

python examples/after_training.py
"""

import alray

SPEC = {
    "name": "vgg",
    "data": {"source": "digits", "batch_size": 32, "validation_fraction": 0.2},
    "model": {"components": [{"block": "vgg", "channels": [8]}, {"block": "vgg", "channels": [8], "pool": True}]},
    "method": {"kind": "associated_learning", "label_dim": 32},
    "optimizer": {"lr": 1e-2},
    "run": {"epochs": 2},
}

folder = alray.run(SPEC, inline=True).folder  # a new one in runs/

run = alray.load_run(folder)  # in another program, on another day
trained = run.trained(best=True)  # without `best` the last checkpoint
for accuracy in trained.evaluate().scores:
    print(f"depth {accuracy.depth}: test accuracy {accuracy.test:.4f}")
print(f"weights for `alray predict`: {trained.export('safetensors').file}")

# The same weights as those of a run of three epochs on one stage, bit for bit.
longer = run.resume({"run.epochs": 3, "pipeline.stages": 2}, inline=True)
print(f"{longer.summary.steps} mini-batches, weights {longer.summary.weights_sha256[:12]}")
