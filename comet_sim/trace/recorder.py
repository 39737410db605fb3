"""The recorder: keeps every record of a run as packed integers, and streams them to Parquet files in blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib import metadata as packages
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from comet_sim.events import Compute, DealerRequest, Message, Names, Observer, Reveal
from comet_sim.trace.digest import TableDigest, combine
from comet_sim.trace.schema import SCHEMA_VERSION, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Recorder", "footer", "package_version"]

# Little endian everywhere, so that the bytes kept are the bytes hashed. Packing a whole record is less than
# half the price of extending an `array` with it (380 against 850 ns a message).
_MESSAGE, _COMPUTE, _REVEAL, _DEALER = (Struct(f"<{len(table.columns)}q") for table in TABLES)
_PARTIAL = ".partial"


class Recorder(Observer):
    """Observer that stores a run, in `folder` as Parquet or, without a folder, in memory as Arrow.

    Memory stays bounded when streaming: at most `rows_per_block` rows a table wait to be written. Call
    `close` to finish the trace, or `abort` to leave nothing behind.
    """

    __slots__ = ("_blocks", "_compute", "_dealer", "_folder", "_limits", "_messages", "_names", "_reveals", "_state")

    def __init__(
        self,
        names: Names,
        folder: Path | None,
        *,
        metadata: Mapping[str, object] | None = None,
        rows_per_block: int = 65_536,
    ) -> None:
        self.metadata: dict[str, object] = dict(metadata or {})
        """What is known of the run, JSON; may be added to until `close`."""
