"""Draw the picture of docs/watch.md: a screen of `comet-sim watch`, as an SVG made from a real run.

Usage: python tools/watch_picture.py docs/images/watch.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from comet_sim.dashboard.canvas import UNICODE, Canvas
from comet_sim.dashboard.feed import Feed
from comet_sim.dashboard.layout import draw
from comet_sim.events import Message
from comet_sim.scenario import load_scenario
from comet_sim.simulation import simulate

AT = "token6/layer2/ffn/relu"
WIDTH, HEIGHT = 150, 42


class Snapshot(Feed):
    """A feed that draws one screen when the op `AT` begins."""

    drawn: Canvas | None = None

    def message(self, record: Message) -> None:
        """Pass on a message, and draw."""
        super().message(record)
        if self.drawn is None and self._names().text(record.path).startswith(AT):
            self.gate.paused = True
            self.drawn = Canvas(draw(self.view(), WIDTH, HEIGHT, UNICODE))
            self.gate.paused = False


def main() -> None:
    """Run the scenario and write the picture."""
    scenario = load_scenario("comet")
    feed = Snapshot("comet", None)
    simulate(scenario, next(each for each in scenario.systems if each.name == "comet"), spectator=feed)
    assert feed.drawn is not None
    out = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, highlight=False)
    out.print(feed.drawn, end="")
    # Without the web fonts rich asks for: a picture of ours must not fetch anything.
    picture = re.sub(
        r"@font-face \{.*?\}\s*", "", out.export_svg(title="comet-sim watch comet"), flags=re.DOTALL
    )
    Path(sys.argv[1]).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
