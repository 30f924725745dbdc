"""The partition, simulation, memory and step time of a plan. No torch, no Ray."""
