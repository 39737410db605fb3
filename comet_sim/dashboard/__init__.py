"""A run on the screen, while it goes on (`live`) or afterwards (`replay`): panels, keys, pace."""
