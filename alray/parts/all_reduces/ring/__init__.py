"""A ring: each rank sends to the next one."""
