"""Values are sent as bfloat16: half the bytes, the range of float32, 8 bits of precision."""
