"""What Comet skipped in a run, for the summary: densities, components of masks, and the KV cache's holes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from comet_sim.comet.accounting import composed
from comet_sim.comet.indexing import Part
from comet_sim.comet.record import SparsityRecord, Worked
from comet_sim.comet.settings import CometSettings

__all__ = ["describe_sparsity"]


def describe_sparsity(settings: CometSettings, record: SparsityRecord) -> dict[str, Any]:
    """Return the figures of a run under Comet, JSON-able; shares are of all entries of the masks opened."""
    cache = record.cache
    return {
        "settings": asdict(settings),
        "neurons": _density(record, "ffn") if settings.ffn else None,
        "heads": _density(record, "heads") if settings.heads else None,
        "products": _products(record.products),
        "privacy": composed(settings, record),
        "cache": {**asdict(cache.counts), "kept_input_bytes": cache.kept_bytes}
        if cache and settings.heads
        else None,
    }


def _density(record: SparsityRecord, part: Part) -> dict[str, Any]:
    """Active entries; columns that are active for some token of a call, which is what bytes depend on; by layer."""
    masks = [(call, mask) for call, mask in record.masks if call.part == part]
    entries = sum(mask.size for _, mask in masks)
    layers: dict[int, list[int]] = {}
    for call, mask in masks:
        counted = layers.setdefault(call.layer, [0, 0])
        counted[0] += int(mask.sum())
        counted[1] += mask.size
    columns = sum(mask.shape[1] for _, mask in masks)
    return {
        "density": sum(active for active, _ in layers.values()) / entries if entries else None,
        "columns_sent": sum(int(mask.any(0).sum()) for _, mask in masks) / columns if columns else None,
        "by_layer": [active / size for _, (active, size) in sorted(layers.items())],
    }


def _products(products: list[Worked]) -> dict[str, Any]:
    """Components of the masks of feed-forward products: how many, and how much of a mask the largest one spans."""
    several = [each for each in products if each.shape[0] > 1]
    counts = [each.found.count for each in several]
    largest = [
        each.found.rows[0] * each.found.columns[0] / max(1, each.found.blocks)
        for each in several
        if each.found.count
    ]
    return {
        "calls": len(products),
        "calls_of_several_tokens": len(several),
        "components_max": max(counts, default=None),
        "components_mean": sum(counts) / len(counts) if counts else None,
        "largest_component_share": sum(largest) / len(largest) if largest else None,
    }
