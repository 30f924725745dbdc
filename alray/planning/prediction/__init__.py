"""Partition, schedule, simulation, memory. No torch, no Ray."""
