"""Traces in the formats of other programs: Perfetto, Chrome's trace viewer, pcapng, Parquet."""

from comet_sim.export.formats import FORMATS, Format, export

__all__ = ["FORMATS", "Format", "export"]
