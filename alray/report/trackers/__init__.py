"""Trackers: programs that show a run while it goes on, such as TensorBoard, MLflow and Weights & Biases."""
