"""What one does with a trained network: evaluate, predict, export."""
