"""What components cost: time, memory, and the speed of a device."""
