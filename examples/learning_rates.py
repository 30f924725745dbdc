"""Train one network, written as a dict, with three learning rates, and compare the runs.

python examples/learning_rates.py
"""

import alray

SPEC = {
    "name": "mlp",
    "data": {"source": "digits", "batch_size": 32, "validation_fraction": 0.2},
    "model": {"components": [{"block": "mlp", "widths": [32], "repeat": 2}]},
    "method": {"kind": "associated_learning", "label_dim": 32},
    "run": {"epochs": 5},
}

runs = [alray.run(SPEC, {"optimizer.lr": lr}, inline=True) for lr in (1e-2, 3e-3, 1e-3)]
found = alray.compare(runs)
print(found.table()[["label", "validation.mean", "test.mean"]].to_string(index=False))
best = max(runs, key=lambda run: run.summary.accuracy.validation)
print(f"the best learning rate of the three is {best.spec.optimizer.lr}")
