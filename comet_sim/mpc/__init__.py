"""Two-party computation on additive shares over Z_2^64: the base layer of every system."""
