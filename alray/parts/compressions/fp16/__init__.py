"""Values are sent as 16-bit floats: half the bytes, the largest value is 65,504."""
