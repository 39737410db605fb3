"""Which panels stand where, by the size of the terminal."""

from __future__ import annotations

from collections.abc import Callable

from comet_sim.dashboard import panels
from comet_sim.dashboard.canvas import Glyphs, Line, beside, box, clean, fit, wrap
from comet_sim.dashboard.view import View
from comet_sim.events import Phase
from comet_sim.units import format_duration

__all__ = ["PAGES", "draw"]

PAGES = 3
"""Pages of a small screen; a wide one shows them all."""

_LEAST = (60, 20)
_WIDE = (120, 40)

_HELP = (
    ("space", "pause, go on"),
    ("n", "step to the next round: a message that had to wait for another"),
    ("o", "step to the next operation of the program"),
    ("t", "go to the next output token"),
    ("s", "go to the next stall: somebody waits much longer than usual"),
    ("+ -", "twice as fast, half as fast"),
    ("m", "as fast as possible"),
    ("tab", "other panels, where the screen is too small for all"),
    ("h ?", "this help"),
    ("q", "quit"),
)
_REPLAY_HELP = (
    ("space", "play, pause"),
    ("n N", "next round, the one before"),
    ("o O", "next operation, the one before"),
    ("t T", "next output token, the one before"),
    ("s S", "next stall, the one before: somebody waits much longer than usual"),
    ("g", "go to a time (12.5ms), a token (token 3) or an op (layer2/ffn, or a pattern with *)"),
    ("0 $", "the beginning, the end"),
    ("+ -", "twice as fast, half as fast"),
    ("tab", "other panels, where the screen is too small for all"),
    ("h ?", "this help"),
    ("q", "quit"),
)
_READ_ME = (
    "Two servers compute on shares: random-looking halves that say something only together. To multiply, they "
    "open masked numbers to each other and wait for the other's half: a round. The dealer deals the random "
    "numbers for the masks, the owner has shared the weights, the user asks. Under Comet a predictor guesses "
    "which neurons and heads will be zero; the servers open that guess in a secret order and skip the rest."
)


def draw(
    view: View, width: int, height: int, glyphs: Glyphs, *, page: int = 0, help: bool = False
) -> list[Line]:
    """Return the screen: exactly `height` lines of exactly `width` cells."""
    if width < _LEAST[0] or height < _LEAST[1]:
        text = f"this needs {_LEAST[0]} x {_LEAST[1]} characters; the terminal has {width} x {height}"
        return _filled([fit(line, width) for line in wrap(text, width, height)], width, height)
    lines = _head(view, width)
    foot = [_keys(view, width, small=width < _WIDE[0] or height < _WIDE[1], page=page)]
    room = height - len(lines) - len(foot)
    if help:
        lines += _help(view, width, room, glyphs)
    elif width >= _WIDE[0] and height >= _WIDE[1]:
        lines += _wide(view, width, room, glyphs)
    else:
        lines += _small(view, width, room, glyphs, page % PAGES)
    return _filled(lines, width, height - len(foot)) + foot


def _filled(lines: list[Line], width: int, height: int) -> list[Line]:
    blank: Line = [(" " * width, "")]
    return (lines + [blank] * max(0, height - len(lines)))[:height]


def _head(view: View, width: int) -> list[Line]:
    phase = Phase(view.phase).label
    left = f" {clean(view.title)}  {view.system}"
    known, whole = view.steps
    right = f"{phase}, {known} of {whole} tokens  {view.state.upper()} "
    left = left[: max(0, width - len(right) - 1)]
    lines: list[Line] = [[(left + " " * (width - len(left) - len(right)) + right, "title")]]
    factor = "" if view.factor is None else f"  {view.factor:.3g} virtual s a second"
    rounds = int(view.tally.rounds[view.phase])
    where = "" if view.replay is None else f"  {view.replay:.1%} of the run"
    clock = f" clock {format_duration(view.clock)}  pace {view.pace}{factor}  {rounds:,} rounds{where}"
    extra = f"  {clean(view.message)}" if view.message else ""
    about = ""
    for part in view.about.split(", "):
        if len(clock) + len(extra) + len(about) + len(part) + 2 <= width:
            about += f"{',' if about else ' '} {part}"
    lines.append(fit([(clock, "bold"), (extra, "wait"), (about, "dim")], width))
    prompt, out = (clean(part) for part in view.text)
    room = width - 7
    said = (prompt + out)[-room:]
    cut = max(0, len(said) - len(out))
    lines.append(fit([(" text  ", "dim"), (said[:cut], "dim"), (said[cut:], "now")], width))
    if view.prompt is not None:
        lines.append(fit([(" go to: ", "key"), (f"{view.prompt}_", "now")], width))
        about = " a time (12.5ms), a token (token 3) or an op (layer2/ffn); Enter goes, Esc leaves"
        lines.append(fit([(about, "dim")], width))
        lines += [fit([], width)] * (width < _WIDE[0])
        return lines
    lines += _told(" now   ", view.now, "now", width)
    lines.append(fit([("       ", ""), (clean(view.waits), "wait")], width))
    return lines


def _told(label: str, text: str, style: str, width: int) -> list[Line]:
    """Return a sentence behind its label: on two lines where one may be too short for it."""
    rows = 1 if width >= _WIDE[0] else 2
    said = wrap(clean(text), width - len(label) - 1, rows, style)
    said += [[]] * (rows - len(said))
    return [fit([(label if not i else " " * len(label), "key"), *line], width) for i, line in enumerate(said)]


def _keys(view: View, width: int, *, small: bool, page: int) -> Line:
    go = "go on" if view.state == "paused" else "pause"
    pairs = [("space", go), ("n", "round"), ("o", "op"), ("t", "token"), ("s", "stall"), ("+-", "speed")]
    if view.replay is not None:
        pairs = [("space", "play" if view.state == "paused" else "pause"), ("nN", "round"), ("oO", "op"),
                 ("tT", "token"), ("sS", "stall"), ("g", "go to")]  # fmt: skip
    if view.state == "finished" and view.replay is None:
        pairs = []
    if small:
        pairs.append(("tab", f"more {page % PAGES + 1}/{PAGES}"))
    pairs += [("h", "help"), ("q", "quit")]
    line: Line = [(" ", "")]
    for key, text in pairs:
        line += [(key, "key"), (f" {text}  ", "")]
    return fit(line, width)


def _help(view: View, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    inner = width - 4
    lines: list[Line] = [
        [(f"{key:<8}", "key"), (text, "")] for key, text in (_HELP if view.replay is None else _REPLAY_HELP)
    ]
    lines.append([])
    return box("help", lines + wrap(_READ_ME, inner, max(1, height - 2 - len(lines))), width, height, glyphs)


Panel = Callable[[View, int, Glyphs], list[Line]]


def _framed(title: str, panel: Panel, view: View, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    return box(title, panel(view, width - 4, glyphs), width, height, glyphs)


def _titles(view: View) -> tuple[str, str]:
    masks, cache = view.masks, view.cache
    skips = "" if isinstance(masks, str) else f": layer {masks.layer}, last token, {masks.order}"
    holes = "" if isinstance(cache, str) else f": layer {cache.layer} ({cache.counts})"
    return f"what Comet skips{skips}", f"KV cache{holes}"


def _cache(height: int) -> Panel:
    return lambda view, width, glyphs: panels.cache(view, width, glyphs, height)


_PARTIES = "parties (this phase: busy share)"
_LINKS = "links (this phase: busy share)"


def _small(view: View, width: int, height: int, glyphs: Glyphs, page: int) -> list[Line]:
    half, upper = width // 2, min(9, height // 2)
    rest, lower = width - half, height - upper
    mask_title, cache_title = _titles(view)
    if page == 0:
        top = beside(
            _framed(_PARTIES, panels.parties, view, half, upper, glyphs),
            _framed("cost so far", panels.costs, view, rest, upper, glyphs),
        )
        links = min(lower - 5, len(view.links) + 2) if view.links else 3
        return [
            *top,
            *_framed(_LINKS, panels.links, view, width, links, glyphs),
            *_framed("last rounds", panels.rounds, view, width, lower - links, glyphs),
        ]
    if page == 1:
        upper = 6
        lower = height - upper
        return [
            *_framed(mask_title, panels.masks, view, width, upper, glyphs),
            *_framed(cache_title, _cache(lower - 2), view, width, lower, glyphs),
        ]
    return [
        *beside(
            _framed("phases", panels.phases, view, half + 8, 6, glyphs),
            _framed("dealer", panels.stock, view, rest - 8, 6, glyphs),
        ),
        *_framed("opened so far, and to whom", panels.ledger, view, width, height - 6, glyphs),
    ]


def _wide(view: View, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    half = width // 2
    rest = width - half
    mask_title, cache_title = _titles(view)
    top, phases = 13, 6
    left = [
        *_framed(_PARTIES, panels.parties, view, half, 7, glyphs),
        *_framed(_LINKS, panels.links, view, half, top + phases - 7, glyphs),
    ]
    right = [
        *_framed("cost so far, by part", panels.costs, view, rest, top, glyphs),
        *_framed("cost so far, by phase", panels.phases, view, rest, phases, glyphs),
    ]
    lower = height - top - phases
    low = max(7, min(12, lower - 8))
    middle = lower - low
    pictures = [
        *_framed(mask_title, panels.masks, view, half, 6, glyphs),
        *_framed(cache_title, _cache(lower - 8), view, half, lower - 6, glyphs),
    ]
    books = [
        *_framed("dealer", panels.stock, view, rest, 4, glyphs),
        *_framed("opened so far, and to whom", panels.ledger, view, rest, low - 4, glyphs),
    ]
    wide = [*_framed("last rounds", panels.rounds, view, rest, middle, glyphs), *books]
    return [*beside(left, right), *beside(pictures, wide)]
