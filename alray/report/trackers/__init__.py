"""Trackers: programs that show a run while it is running, such as TensorBoard, MLflow and Weights & Biases."""
