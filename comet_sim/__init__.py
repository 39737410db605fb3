"""Simulate private LLM inference party by party: real secret-shared arithmetic, exact traffic, emulated links."""
