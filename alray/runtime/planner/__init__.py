"""How a run will run: its costs, cut, schedule, micro-batches and memory."""
