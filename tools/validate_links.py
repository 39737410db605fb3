"""Compare link transports with times measured on real TCP and gloo, cell by cell.

Usage: python tools/validate_links.py [--segments] [--write docs/links-validation.md]

Prints tables in Markdown: `tcp` on every cell of tests/data/tcp_measured.csv, `gloo` on tests/data/gloo_measured.csv
and, with --segments (a minute), `tcp-segments` on every cell. --write puts them into a page between its markers.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from comet_sim.network import LinkConfig
from comet_sim.network.study import exchange, ping_pong

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
HOST = {"tun": 300_000, "tbf": 90_000}
"""Host overhead a message by emulator, ns: fitted on the one-way cells, and on the smallest exchange."""

_MS = 10**6
_SETTLED = 4  # rounds after which a connection's window has grown, so that the rest are alike
_LARGE = 2**20


@dataclass(frozen=True)
class TcpCell:
    """A measured cell: link, exchange pattern and the mean time of a round."""

    emulator: str
    rate: int
    delay: int
    control: str
    pattern: str
    size: int
    rounds: int
    measured_ms: float

    def simulated_ms(self, transport: str) -> float:
        """Return the mean time of as many simulated rounds, ms; large rounds alike are played once."""
        link = LinkConfig(self.rate, self.delay, host=HOST[self.emulator], transport=transport)
        play = exchange if self.pattern == "exchange" else ping_pong
        rounds = min(self.rounds, _SETTLED) if self.size >= _LARGE else self.rounds
        times = list(play(self.size, rounds, link).rounds)
        tail = times[rounds // 2 :]
        total = sum(times) + (self.rounds - rounds) * sum(tail) / len(tail)
        return total / self.rounds / _MS


@dataclass(frozen=True)
class GlooCell:
    """A measured operation of CrypTen: its rounds, what a party sends, and its time."""

    op: str
    elements: int
    rounds: int
    size: int
    delay: int
    measured_ms: float

    def simulated_ms(self, host: int) -> float:
        """Return the time of the operation's rounds as exchanges of equal size, ms; `host` in ns a round."""
        link = LinkConfig(None, self.delay, host=host, transport="gloo")
        return sum(exchange(self.size // self.rounds, self.rounds, link).rounds) / _MS


def tcp_cells(path: Path = DATA / "tcp_measured.csv") -> list[TcpCell]:
    """Return the measured cells of TCP, in the file's order."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            TcpCell(
                row["emulator"],
                int(row["rate_mbit"]) * 10**6,
                round(float(row["one_way_delay_ms"]) * _MS),
                row["congestion_control"],
                row["pattern"],
                int(row["message_bytes"]),
                int(row["rounds"]),
                float(row["measured_ms_per_round"]),
            )
            for row in csv.DictReader(file)
        ]


def gloo_cells(path: Path = DATA / "gloo_measured.csv") -> list[GlooCell]:
    """Return the measured operations, in the file's order."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            GlooCell(
                row["op"],
                int(row["elements"]),
                int(row["rounds"]),
                int(row["bytes"]),
                round(float(row["one_way_delay_ms"]) * _MS),
                float(row["measured_ms"]),
            )
            for row in csv.DictReader(file)
        ]


def gloo_host(cell: GlooCell, cells: Sequence[GlooCell]) -> int:
    """Return the host time of a round, ns: of the same operation without delay, else of all of those."""
    still = [other for other in cells if not other.delay]
    same = [other for other in still if (other.op, other.elements) == (cell.op, cell.elements)]
    return round(median(other.measured_ms / other.rounds for other in same or still) * _MS)


def error(simulated_ms: float, measured_ms: float) -> float:
    """Return how far a simulated time is off the measured one, as a share of it."""
    return simulated_ms / measured_ms - 1


def tcp_row(cell: TcpCell, simulated_ms: float) -> str:
    """Return a cell's line of the table as far as `tcp` goes."""
    return (
        f"| {cell.emulator} | {cell.rate // 10**6} | {cell.delay / _MS:g} | {cell.control} | "
        f"{cell.pattern} | {cell.size:,} | {cell.measured_ms:.2f} | {simulated_ms:.2f} | "
        f"{error(simulated_ms, cell.measured_ms):+.1%} |"
    )


def tcp_table(*, segments: bool) -> str:
    """Return all cells of TCP with their error, whatever it is; `segments` adds the packet-level mode."""
    head = (
        "| emulator | rate Mbit/s | one-way ms | control | pattern | bytes | measured ms | tcp ms | error |"
    )
    rule = "|---|---|---|---|---|---|---|---|---|"
    lines = [head + " segments ms | error |", rule + "---|---|"] if segments else [head, rule]
    exchanges = []
    for cell in tcp_cells():
        line = tcp_row(cell, cell.simulated_ms("tcp"))
        if segments:
            simulated = cell.simulated_ms("tcp-segments")
            off = error(simulated, cell.measured_ms)
            line += f" {simulated:.2f} | {off:+.1%} |"
            if cell.pattern == "exchange" and cell.size == 2**24 and cell.control == "cubic":
                exchanges.append(abs(off))
        lines.append(line)
    if segments:
        lines.append("")
        lines.append(
            f"Exchanges of 16 MB (CUBIC) under `tcp-segments`: median error {median(exchanges):.1%}, "
            f"largest {max(exchanges):.1%}, of {len(exchanges)} cells."
        )
    return "\n".join(lines)


def gloo_table() -> str:
    """Return all operations over gloo with their error; rows without delay calibrate the host time."""
    cells = gloo_cells()
    lines = [
        "| operation | elements | rounds | one-way ms | measured ms | host ms a round | gloo ms | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        host = gloo_host(cell, cells)
        simulated = cell.simulated_ms(host)
        lines.append(
            f"| {cell.op} | {cell.elements:,} | {cell.rounds} | {cell.delay / _MS:g} | {cell.measured_ms:.2f} | "
            f"{host / _MS:.2f} | {simulated:.2f} | {error(simulated, cell.measured_ms):+.1%} |"
        )
    return "\n".join(lines)


def put(page: str, name: str, table: str) -> str:
    """Return `page` with `table` between its markers called `name`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"the page has no markers {begin.strip()} and {end}")
    return before + begin + "\n" + table + "\n\n" + end + rest.partition(end)[2]


def main() -> None:
    """Print the tables, or write them into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--segments", action="store_true", help="also tcp-segments (takes a minute)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the tables into this page")
    args = parser.parse_args()
    tables = {"tcp": tcp_table(segments=args.segments), "gloo": gloo_table()}
    if not args.write:
        print("\n\n".join(tables.values()))
        return
    page = args.write.read_text(encoding="utf-8")
    for name, table in tables.items():
        page = put(page, name, table)
    args.write.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
