"""What the documentation says is true: its blocks run, print what they show, and its links and tables are whole.

A `text` block right after a `bash` or `python` block is what that block prints on stdout; a line `...` in it
stands for any lines. `COMET_SIM_DOCS=write pytest tests/docs` writes the present output into such blocks
that have no such line.
Blocks of a page run in order in one temporary folder, the Python ones in one namespace.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from comet_sim.network.profiles import LinkSpec, list_profiles
from comet_sim.scenario import Scenario, shipped_scenarios
from comet_sim.trace.schema import TABLES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if page.is_file()]
WRITE = os.environ.get("COMET_SIM_DOCS") == "write"

_BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.M | re.S
)
_LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]+)?\)")
_NOT_RUN = re.compile(r"(make|pip|git)\b")


@dataclass
class Block:
    """A fenced block of a page; `shows` is the text block with its output, if there is one."""

    language: str
    body: str
    line: int
    start: int
    end: int
    reason: str | None
    shows: Block | None = None


def blocks(text: str) -> list[Block]:
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("body"))
        block = Block(
            match["language"], match["body"], line, match.start("body"), match.end("body"), match["reason"]
        )
        before = found[-1] if found else None
        if block.language == "text" and before and before.language in ("bash", "console", "python"):
            between = text[before.end : match.start()].removeprefix("```")
            if not between.strip():
                before.shows = block
        found.append(block)
    return found


def commands(block: Block) -> str:
    """Return the script of a block without what only an installation can run; those lines are checked."""
    lines = block.body.splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    kept = []
    for line in lines:
        if _NOT_RUN.match(line):
            check_target(line)
        else:
            kept.append(line)
    return "\n".join(kept)


def check_target(line: str) -> None:
    """A documented `make` target or pip extra exists."""
    words = line.split("#")[0].split()
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in words[1:]:
            assert re.search(rf"^{re.escape(target)}:", makefile, re.M), (
                f"no target {target!r} in the Makefile"
            )
    if words[0] == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for extras in re.findall(r"\[([a-z,]+)\]", line):
            for extra in extras.split(","):
                assert extra in project["optional-dependencies"], f"no extra {extra!r} in pyproject.toml"


def run_shell(script: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done.stdout


def run_python(source: str, where: str, namespace: dict[str, Any]) -> str:
    """Run a block as a notebook would: a top-level `await` is fine."""
    out = io.StringIO()
    code = compile(source, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with redirect_stdout(out):
        result = eval(code, namespace)
        if inspect.iscoroutine(result):
            asyncio.run(_finish(result))
    return out.getvalue()


async def _finish(coroutine: Any) -> None:
    await coroutine


def tidy(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def assert_shown(expected: str, printed: str) -> None:
    """Compare line by line, `...` standing for any lines."""
    wanted, rest = tidy(expected), tidy(printed)
    if "..." not in wanted:
        assert rest == wanted
        return
    at = 0
    for number, line in enumerate(wanted):
        if line == "...":
            continue
        free = number > 0 and wanted[number - 1] == "..."
        found = rest.index(line, at) if free and line in rest[at:] else at
        assert rest[found : found + 1] == [line], f"{line!r} is not printed there:\n" + "\n".join(rest)
        at = found + 1
    assert wanted[-1] == "..." or at == len(rest)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The shell's: `comet-sim` and `python` as an installation would put them on the PATH."""
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, module in (("comet-sim", "-m comet_sim"), ("python", "")):
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "120",
        "PYTHONIOENCODING": "utf-8",
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_of_a_page_run_and_print_what_they_show(
    page: Path, tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What broke: tables copied once and never again, and options that a command no longer has.
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "docs"}
    replaced: list[tuple[Block, str]] = []
    for block in blocks(text):
        if block.reason is not None or block.language not in ("bash", "console", "python"):
            continue
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            printed = run_python(block.body, where, namespace)
        else:
            printed = run_shell(commands(block), folder, environment)
        if block.shows is None:
            continue
        if WRITE:
            if "..." not in tidy(block.shows.body):
                replaced.append((block.shows, printed))
            continue
        assert_shown(block.shows.body, printed)
    for shown, printed in reversed(replaced):
        text = text[: shown.start] + "\n".join(tidy(printed)) + "\n" + text[shown.end :]
    if replaced:
        page.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target, anchor in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {target} does not exist"
        if anchor:
            assert anchor[1:] in anchors(file), f"{page.name}: {target}{anchor} leads nowhere"


def anchors(page: Path) -> set[str]:
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_not_run_is_for_installs_only() -> None:
    for page in PAGES:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.reason is not None:
                assert re.search(r"\b(pip|git|make|venv)\b", block.body), (
                    f"{page.name}:{block.line} is no install"
                )


def test_every_page_is_on_the_map() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    missing = [
        page.name for page in DOCS.glob("*.md") if page.name != "index.md" and f"({page.name}" not in index
    ]
    assert not missing


def test_every_shipped_scenario_profile_and_trace_column_is_described() -> None:
    everything = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    network = (DOCS / "network.md").read_text(encoding="utf-8")
    trace = (DOCS / "trace.md").read_text(encoding="utf-8")
    missing = [name for name in shipped_scenarios() if f"`{name}`" not in everything]
    missing += [name for name in list_profiles() if f"`{name}`" not in network]
    missing += [
        column.name for table in TABLES for column in table.columns if f"`{column.name}`" not in trace
    ]
    assert not missing


def settings(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Return every key of the schema with its default as JSON, links of other parties as one key."""
    found = {}
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not LinkSpec:
            found |= settings(kind, f"{key}.")
            continue
        if name == "systems":
            found |= settings(field.annotation.__args__[0], "systems.0.")
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        empty = default is None or default == {} or isinstance(default, BaseModel) or default == ""
        shown = "" if empty else json.dumps(default)
        found[key] = "required" if field.is_required() else shown
    return found


def test_scenario_page_lists_every_key_with_its_default() -> None:
    # What broke: a setting added to the schema that nobody could find.
    page = (DOCS / "scenarios.md").read_text(encoding="utf-8")
    section = page.split("\n## ")[1].split("\nDevices")[0]
    rows = re.findall(r"^\| `([a-z_0-9.]+)` \| ([^|]*) \|", section, re.M)
    assert {key: default.strip().strip("`") for key, default in rows} == settings(Scenario)
