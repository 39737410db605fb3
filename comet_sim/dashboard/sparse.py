"""Masks and the KV cache as pictures: of a run that goes on, as its servers see them, or of a finished one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.bitmap import Bitmap
from comet_sim.comet.prefetch import wanted
from comet_sim.comet.record import SparsityRecord
from comet_sim.dashboard.view import HOLE, PREFETCHED, REFILLED, CachePicture, Mask, MaskPicture
from comet_sim.simulation.scene import Scene

__all__ = ["kept_cache", "kept_masks", "live_cache", "live_masks"]

_DENSE = "dense: nothing is skipped"
_NO_MASK = "no mask has been opened yet"
_NO_HEADS = "no head has been skipped yet"


def live_masks(scene: Scene) -> MaskPicture | str:
    """Return the last opened masks, in the secret order in which both servers see them."""
    record = scene.record
    if record is None:
        return _DENSE
    masks = record.masks
    if not masks:
        return _NO_MASK
    call, mask = masks[-1]
    layer = call.layer
    found: dict[str, Mask] = {call.part: mask[-1]}
    # The layer's other part was opened a little before, if at all.
    for other, before in reversed(masks[-8:-1]):
        if other.layer == layer and other.part not in found:
            found[other.part] = before[-1]
    return MaskPicture(layer, "in a secret order, as servers see it", found.get("ffn"), found.get("heads"))


def live_cache(scene: Scene) -> CachePicture | str:
    """Return the KV cache of the layer at work, of the first sequence."""
    record = scene.record
    if record is None:
        return "dense: every entry is computed, no holes"
    cache = record.cache
    layer = next((call.layer for call, _ in reversed(record.masks) if call.part == "heads"), None)
    if cache is None or layer is None:
        return _NO_HEADS
    kept = cache.layers[layer]
    holes, early = kept.holes, kept.early
    if holes is None or early is None or holes.shape != early.shape:
        return _NO_HEADS
    entries = np.where(holes[0], HOLE, 0).astype(np.int8)
    at_first = _made_at_first(record, layer, scene.config.kv_heads, holes.shape[1])
    if at_first is not None:
        entries[~holes[0] & ~at_first] = REFILLED
    entries[~holes[0] & (early[0] > 0)] = PREFETCHED
    counts = cache.counts
    made = f"{counts.refilled:,} refilled, {counts.prefetched:,} prefetched"
    said = f"all: {counts.hits:,} hits, {counts.misses:,} misses, {made}"
    return CachePicture(layer, entries.T, said)


def _made_at_first(record: SparsityRecord, layer: int, kv_heads: int, tokens: int) -> Mask | None:
    """Return which entries (tokens, K/V heads) were made with their token; None when orders have changed."""
    calls = [(call, mask) for call, mask in record.masks if call.part == "heads" and call.layer == layer]
    if not calls or len({call.versions for call, _ in calls}) > 1:
        return None
    parts = [
        wanted(np.asarray(mask.reshape(call.batch, -1, kv_heads, mask.shape[1] // kv_heads).any(3)))[0]
        for call, mask in calls
    ]
    # The record may be a token ahead of the cache, or behind: what is not known was made.
    made = np.ones((tokens, kv_heads), bool)
    joined = np.concatenate(parts)[:tokens]
    made[: len(joined)] = joined
    return made


def kept_masks(masks: Bitmap, layer: int, tokens: int) -> MaskPicture | str:
    """Return the masks of the last of `tokens` tokens that a run folder keeps, in the model's own order."""
    if not tokens:
        return _NO_MASK
    found = {
        part: None if kept is None or layer >= len(kept) else _first_sequence(masks, kept[layer])[tokens - 1]
        for part, kept in (("ffn", masks.ffn), ("heads", masks.heads))
    }
    return MaskPicture(layer, "in the model's own order, from masks.npz", found["ffn"], found["heads"])


def kept_cache(masks: Bitmap, layer: int, prompt: int, tokens: int) -> CachePicture | str:
    """Return the KV cache that follows from kept masks after `tokens` tokens, `prompt` of them in one pass.

    An entry of a head that was inactive is a hole until that head is active again. Entries filled early (prefetched)
    are not told apart: a run folder does not keep them.
    """
    if masks.heads is None or layer >= len(masks.heads) or not tokens:
        return _NO_HEADS
    active = _first_sequence(masks, masks.heads[layer])[:tokens]
    first, later = active[:prompt], active[prompt:]
    made = np.concatenate([wanted(first[None])[0], later])
    # Whether the head was active again, in a pass after the one that left the hole.
    again: NDArray[np.bool_] = np.zeros_like(active)
    if len(later):
        after = np.logical_or.accumulate(later[::-1])[::-1]
        again[:prompt] = after[0]
        again[prompt:-1] = after[1:]
    entries = np.where(made, 0, np.where(again, REFILLED, HOLE)).astype(np.int8)
    return CachePicture(layer, entries.T, "from masks.npz; entries filled early are not told apart")


def _first_sequence(masks: Bitmap, layer: Mask) -> Mask:
    found: Mask = layer.reshape(masks.batch, -1, layer.shape[1])[0]
    return found
