"""The uses of a trained network: evaluate, predict, export."""
