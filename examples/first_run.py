"""Train the network of a spec with another learning rate, and look at what came of it.

python examples/first_run.py          # from the root of the repository
"""

import alray

# `inline=True` trains in this process. Without it, each stage is a Ray actor: the weights are the same, bit for bit.
run = alray.run("specs/laptop/mlp_digits.yaml", {"optimizer.lr": 0.05, "run.samples": 5000}, inline=True)

summary = run.summary
print(f"test accuracy {summary.accuracy.test:.4f} after {summary.steps} mini-batches")
print(f"a mini-batch took {summary.step_time_s * 1e3:.1f} ms, predicted were {summary.predicted_step_time_s * 1e3:.1f}")
print(run.records("evaluation")[["samples", "validation", "test"]].tail())
print(f"the page is {run.folder / 'report.html'}")
