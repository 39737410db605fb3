"""Draw the picture of the README: what `comet-sim run demo --check` shows, as an SVG made from a real run.

Usage: python tools/picture.py docs/images/demo.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from comet_sim.cli.check import compare_with_plain
from comet_sim.cli.report import show_comparison, show_summary
from comet_sim.scenario import load_scenario, prepare
from comet_sim.simulation import simulate


def main() -> None:
    """Run the demo and write the picture."""
    scenario = load_scenario("demo")
    result = simulate(scenario)
    out = Console(record=True, width=118, file=io.StringIO(), force_terminal=True, highlight=False)
    out.print("$ comet-sim run demo --check\n")
    show_summary(out, result.summary, Path("runs/demo") / result.system)
    comparisons = compare_with_plain(prepare(scenario), scenario, {result.system: result.summary}, {})
    for label, comparison in comparisons.items():
        show_comparison(out, label, comparison)
    # Without the web fonts rich asks for: a picture of ours must not fetch anything.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", out.export_svg(title="comet-sim"), flags=re.DOTALL)
    Path(sys.argv[1]).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
