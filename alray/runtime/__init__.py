"""A plan becomes a run: devices, channels, stages, measurements, Ray actors and the driver."""
