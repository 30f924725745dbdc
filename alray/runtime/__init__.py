"""A plan becomes a run: devices, channels, stages, measurements, Ray and the driver."""
