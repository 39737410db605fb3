"""Statistics on what servers see: uniform, and the same whatever the input was."""

import numpy as np
from scipy import stats


def uniform(values: np.ndarray) -> float:
    """Smallest p-value that the words are uniform: by byte (chi-square) and as a whole (Kolmogorov-Smirnov)."""
    columns = values.view(np.uint8).reshape(-1, 8)
    counts = [np.bincount(column, minlength=256) for column in columns.T]
    p = [stats.chisquare(count).pvalue for count in counts]
    return float(min(*p, stats.kstest(values / 2.0**64, "uniform").pvalue))


def same(first: np.ndarray, second: np.ndarray) -> float:
    """Smallest p-value that two samples have one distribution: as a whole, and bit by bit."""
    ones = [((values[:, None] >> np.arange(64, dtype=np.uint64)) & 1).sum(0) for values in (first, second)]
    a, b = (count / len(values) for count, values in zip(ones, (first, second), strict=True))
    spread = np.sqrt(0.25 * (1 / len(first) + 1 / len(second)))
    bits = 2 * stats.norm.sf(np.abs(a - b).max() / spread)
    return float(min(bits, stats.ks_2samp(first / 2.0**64, second / 2.0**64).pvalue))


def even_bytes(data: np.ndarray) -> float:
    """p-value that bytes are uniform, whatever the width of the numbers they belong to (chi-square)."""
    return float(stats.chisquare(np.bincount(data, minlength=256)).pvalue)


def same_bytes(first: np.ndarray, second: np.ndarray) -> float:
    """p-value that two samples of bytes have one distribution (chi-square on their counts)."""
    table = np.stack([np.bincount(part, minlength=256) for part in (first, second)])
    return float(stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue)
