"""The baseline `engine: ray_train`: a graph (`graph.py`) whose stages run in Ray Train's workers (`trainer.py`)."""
