"""The costs of components: time, memory, and the speed of a device."""
