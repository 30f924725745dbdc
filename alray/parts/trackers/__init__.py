"""Programs that can show a run while it is running.

`keys.py` of a tracker is its section of a spec; `tracker.py` has a class derived from `Tracker`, which is called with
the fields. MLflow and Weights & Biases are packages beside alray (`plugins/`), and TensorBoard's files are always
written.
"""
