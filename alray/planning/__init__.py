"""A plan from given costs: schedules, simulation, partitions, memory. It needs neither torch nor Ray."""
