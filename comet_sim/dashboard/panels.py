"""The panels: each turns a view into lines that fit a width."""

from __future__ import annotations

import numpy as np

from comet_sim.dashboard.canvas import Glyphs, Line, clean
from comet_sim.dashboard.parts import PARTS
from comet_sim.dashboard.view import Mask, View
from comet_sim.events import Phase
from comet_sim.units import format_count, format_duration, format_size

__all__ = ["cache", "costs", "ledger", "links", "masks", "parties", "phases", "rounds", "stock"]

_SHORT = {"server0": "S0", "server1": "S1", "user": "U", "dealer": "D", "owner": "O"}


def short(party: str) -> str:
    """Return a party's letter."""
    return _SHORT.get(party, party)


def parties(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """Each party: what it does, how busy its device was in this phase."""
    spark = max(4, width - 34)
    lines: list[Line] = []
    for each in view.parties:
        style = "wait" if each.doing.startswith("waits") else "on" if each.doing == "works" else "dim"
        lines.append(
            [
                (f"{each.name:<8}", "bold"),
                (f"{each.doing:<19.19}", style),
                (f"{each.busy:>4.0%} ", ""),
                (glyphs.spark(each.levels, spark), "on"),
            ]
        )
    return lines


def links(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """Each direction of a link: what is under way, how busy it was in this phase."""
    spark = max(4, width - 37)
    lines: list[Line] = []
    for each in sorted(view.links, key=lambda link: -link.total):
        name = f"{short(each.src)}->{short(each.dst)}"
        if each.messages is None:
            way = "under way: ?"
        elif each.messages:
            way = f"{each.messages:,} under way"
        else:
            way = "-"
        size = format_size(each.payload) if each.messages and each.payload else ""
        lines.append(
            [
                (f"{name:<7}", "bold"),
                (f"{way:<12.12}", "wait" if each.messages else "dim"),
                (f"{size:>8} ", "wait"),
                (f"{each.busy:>4.0%} ", ""),
                (glyphs.spark(each.levels, spark), "on"),
                ("", ""),
            ]
        )
    return lines


def costs(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """Time and bytes so far by part of the work, all phases, the most time first."""
    tally = view.tally
    time, size = tally.part_time.sum(0), tally.part_bytes.sum(0)
    whole = max(1, int(time.sum()))
    bar = max(0, min(24, width - 38))
    lines: list[Line] = [[(f"{'part':<15}{'time':>8}{'':>5}{'bytes':>8}", "dim")]]
    for i in sorted(np.flatnonzero(tally.part_count.sum(0)).tolist(), key=lambda i: -int(time[i])):
        share = int(time[i]) / whole
        figures = f"{format_duration(int(time[i])):>8}{share:>5.0%}{format_size(int(size[i])):>8}  "
        lines.append([(f"{PARTS[i]:<15}", ""), (figures, ""), (glyphs.share(share, bar), "on")])
    return lines


def phases(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """Time, bytes, messages and rounds so far of each phase."""
    tally = view.tally
    lines: list[Line] = [[(f"{'phase':<8}{'time':>9}{'bytes':>9}{'rounds':>8}{'messages':>10}", "dim")]]
    for phase in Phase:
        if phase > view.phase:
            break
        end = view.clock if phase == view.phase else view.starts[phase + 1]
        size, count = int(tally.part_bytes[phase].sum()), int(tally.part_count[phase].sum())
        figures = (
            f"{format_duration(max(0, end - view.starts[phase])):>9}{format_size(size):>9}"
            f"{int(tally.rounds[phase]):>8,}{count:>10,}"
        )
        lines.append([(f"{phase.label:<8}", "bold" if phase == view.phase else ""), (figures, "")])
    return lines


def rounds(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """The last exchanges, the latest at the top: op, bytes each way, who waited for whom and why."""
    room = max(12, width - 50)
    head = f"{'operation':<{room}} {'there':>8} {'back':>8} {'waited':<9} {'mostly for':<10} {'time':>8}"
    lines: list[Line] = [[(head, "dim")]]
    for i, each in enumerate(view.rounds):
        path = clean(each.path or "-")
        path = path if len(path) <= room else f"..{path[len(path) - room + 2 :]}"
        there, back = (format_size(size) if size else "-" for size in (each.there, each.back))
        waited = f"{short(each.waiter)} for {short(each.awaited)}"
        figures = f" {there:>8} {back:>8} "
        lines.append(
            [
                (f"{path:<{room}}", "bold" if not i else ""),
                (figures, ""),
                (f"{waited:<9.9} ", "wait" if not i else ""),
                (f"{each.why:<10} {format_duration(each.duration):>8}", ""),
            ]
        )
    return lines


def masks(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """Which neurons and heads are active: a strip of cells, each the share of the neurons it stands for."""
    found = view.masks
    if isinstance(found, str):
        return [[(found, "dim")]]
    lines: list[Line] = []
    for name, mask in (("heads", found.heads), ("neurons", found.neurons)):
        if mask is None:
            continue
        active, whole = int(mask.sum()), len(mask)
        lines.append(
            [(f"{name}: {active:,} of {whole:,} active ({active / whole:.1%}); the others are skipped", "")]
        )
        lines.append([(strip(mask, width, glyphs), "on")])
    return lines


def strip(mask: Mask, width: int, glyphs: Glyphs) -> str:
    """Return a mask as at most `width` characters: on and off, or the share that is on."""
    if len(mask) <= width:
        return "".join(glyphs.on if bit else glyphs.off for bit in mask.tolist())
    edges = np.arange(width) * len(mask) // width
    shares = np.add.reduceat(mask.astype(np.float64), edges) / np.diff(np.append(edges, len(mask)))
    return glyphs.spark(shares, width).replace(" ", glyphs.off)


def cache(view: View, width: int, glyphs: Glyphs, height: int = 8) -> list[Line]:
    """The KV cache of a layer: a row a head, a column a token, the latest at the right."""
    found = view.cache
    if isinstance(found, str):
        return [[(found, "dim")]]
    rows = max(1, height - 1)
    heads, tokens = found.entries.shape
    shown = found.entries[:rows, max(0, tokens - (width - 4)) :]
    lines: list[Line] = []
    for i, row in enumerate(shown.tolist()):
        lines.append([(f"h{i:<3}", "dim"), ("".join(glyphs.cache[each] for each in row), "on")])
    here, hole, refilled, early = tuple(glyphs.cache)
    more = f", {heads - rows} more heads" if heads > rows else ""
    lines.append([(f"{here} here  {hole} hole  {refilled} refilled  {early} prefetched{more}", "dim")])
    return lines


def stock(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """What the dealer dealt and server 1 holds."""
    return [[(text, "")] for text in view.stock]


def ledger(view: View, width: int, glyphs: Glyphs) -> list[Line]:
    """What was opened so far, and to whom."""
    if not view.ledger:
        return [[("nothing has been opened in the clear yet", "dim")]]
    room = max(10, width - 32)
    lines: list[Line] = [[(f"{'what':<{room}} {'to':<12} {'times':>7} {'elements':>9}", "dim")]]
    for each in view.ledger:
        whom = ", ".join(short(party) for party in each.audience.split(","))
        numbers = f"{each.times:>7,} {format_count(each.elements):>9}"
        lines.append([(f"{clean(each.what):<{room}.{room}} ", ""), (f"{whom:<12} {numbers}", "")])
    return lines
