"""Comet: predicted sparsity on top of a suite. One file a part of the paper (arXiv 2505.07239)."""
