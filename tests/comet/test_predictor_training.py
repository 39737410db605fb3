"""Training: windows kept apart, thresholds chosen as documented, a fit that learns, equal seeds equal results."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comet_sim.comet import texts
from comet_sim.comet.measure import measure_ways
from comet_sim.comet.plain import SkippingDecoder, all_active
from comet_sim.comet.predictor_file import TrainedPredictor
from comet_sim.comet.texts import TrainingTexts, held_out_windows, training_texts
from comet_sim.comet.threshold import Curve, Floors
from comet_sim.comet.training import Ranks, _Fit, train_predictor
from comet_sim.errors import InputError
from comet_sim.models.demo import demo_folder, heldout, load_demo
from comet_sim.models.plain import PlainDecoder
from comet_sim.models.tokenizer import TextTokenizer
from comet_sim.models.train.corpus import Document, split

LIBRARY = Path(json.__file__).parents[1]


def quiet(line: str) -> None:
    pass


def library(name: str) -> Path:
    return LIBRARY / name


@pytest.fixture(scope="module")
def found() -> TrainingTexts:
    return training_texts(load_demo(), demo_folder(), [library("argparse.py")], 40, 0, quiet)


def test_windows_to_train_on_and_to_validate_on_are_apart(found: TrainingTexts) -> None:
    assert found.train.shape == (40, 128) and found.validation.shape == (5, 128)
    whole = TextTokenizer(demo_folder() / "tokenizer.json").encode(library("argparse.py").read_text("utf-8"))
    pieces = {tuple(row) for row in np.asarray(whole[: len(whole) // 128 * 128]).reshape(-1, 128)}
    rows = [tuple(row) for row in (*found.train, *found.validation)]
    assert len(set(rows)) == 45
    assert found.source == "argparse.py"
    # The piece of text may begin anywhere, then its windows are not those of the whole.
    assert set(rows) <= pieces or len(library("argparse.py").read_text("utf-8")) > 8 * 40 * 128


def test_each_domain_gives_as_many_windows(tmp_path: Path) -> None:
    prose = tmp_path / "prose.txt"
    prose.write_text("And it came to pass in those days. " * 3000, encoding="utf-8")
    found = training_texts(load_demo(), demo_folder(), [prose, library("argparse.py")], 40, 0, quiet)
    came = TextTokenizer(demo_folder() / "tokenizer.json").encode(" came")[0]
    assert len(found.train) == 40
    assert int((found.train == came).sum(axis=1).astype(bool).sum()) == 20


def test_seeds_decide_the_windows() -> None:
    first, again, other = (
        training_texts(load_demo(), demo_folder(), [library("argparse.py")], 40, seed, quiet)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first.train, again.train)
    assert not np.array_equal(first.train, other.train)


def test_held_out_text_is_never_trained_on(tmp_path: Path) -> None:
    tokenizer = TextTokenizer(demo_folder() / "tokenizer.json")
    stored = heldout()
    stolen = tmp_path / "stolen.txt"
    stolen.write_text("".join(tokenizer.decode(row) for row in stored.prose), encoding="utf-8")
    with pytest.raises(InputError, match="0 windows of 128 tokens to train on"):
        training_texts(load_demo(), demo_folder(), [stolen], 40, 0, quiet)
    # Between other text only the windows around the stolen one go.
    own = library("argparse.py").read_text("utf-8")
    mixed = tmp_path / "mixed.py"
    mixed.write_text(own + tokenizer.decode(stored.code[0]) + own, encoding="utf-8")
    found = training_texts(load_demo(), demo_folder(), [mixed], 2000, 0, quiet)
    known = {tuple(run) for run in np.lib.stride_tricks.sliding_window_view(stored.code[0], 16)}
    met = [
        tuple(run) in known
        for row in (*found.train, *found.validation)
        for run in np.lib.stride_tricks.sliding_window_view(row, 16)
    ]
    whole = np.asarray(tokenizer.encode(mixed.read_text("utf-8")))
    assert sum(tuple(run) in known for run in np.lib.stride_tricks.sliding_window_view(whole, 16)) > 64
    assert not any(met) and len(found.train) > 300


def test_documents_the_model_held_out_stay_out(tmp_path: Path) -> None:
    documents = [Document(f"Python 3.11.9, {i}.py", "code", f"print({i})") for i in range(20)]
    assert set(texts._training_side(documents, tmp_path)) == set(split(documents, 0).train)
    record = {
        "held_out": [
            {"name": "x", "sha256": documents[3].digest},
            {"name": "Python 3.12.1, 7.py", "sha256": "0"},
        ]
    }
    (tmp_path / "split.json").write_text(json.dumps(record), encoding="utf-8")
    left = texts._training_side(documents, tmp_path)
    assert [d.name for d in documents if d not in left] == ["Python 3.11.9, 3.py", "Python 3.11.9, 7.py"]
    (tmp_path / "split.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"split.json: not a record"):
        texts._training_side(documents, tmp_path)


def test_held_out_windows_come_from_files_the_folder_or_the_package(tmp_path: Path) -> None:
    checkpoint, stored = load_demo(), heldout()
    shipped = held_out_windows(checkpoint, tmp_path, count=3)
    np.testing.assert_array_equal(shipped["prose"], stored.prose[:3])
    ours = stored.code[5:9].astype(np.uint16)
    np.savez(
        tmp_path / "heldout.npz",
        prose=ours[:0],
        code=ours,
        tokenizer_digest=np.array(stored.tokenizer_digest),
    )
    own = held_out_windows(checkpoint, tmp_path)
    assert list(own) == ["code"]
    np.testing.assert_array_equal(own["code"], ours)
    files = held_out_windows(checkpoint, tmp_path, [library("argparse.py"), library("bisect.py")], 300)
    assert list(files) == ["code"] and files["code"].shape[1] == 128
    short = tmp_path / "short.txt"
    short.write_text("In the beginning", encoding="utf-8")
    with pytest.raises(InputError, match="fewer than the 128 tokens"):
        held_out_windows(checkpoint, tmp_path, [short])
    (tmp_path / "heldout.npz").write_bytes(b"no")
    with pytest.raises(InputError, match=r"heldout.npz: not the held-out windows"):
        held_out_windows(checkpoint, tmp_path)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400))
def test_a_curve_equals_counting(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 10, count)
    truth = rng.random(count) < 1 / (1 + np.exp(-scores))
    curve = Curve()
    for piece in np.array_split(np.arange(count), 3):
        curve.add(scores[piece], truth[piece])
    points = curve.points()
    assert [points[0].delta, points[-1].delta, len(points)] == [-20, 20, 4001]
    assert curve.true_density == pytest.approx(truth.mean())
    for point in points[::97]:
        used = scores > point.delta
        assert point.density == pytest.approx(used.mean())
        assert point.precision == pytest.approx(truth[used].mean() if used.any() else 1.0)
        assert point.recall == pytest.approx(used[truth].mean() if truth.any() else 0.0)


def curve_of(scores: Any, truth: Any) -> Curve:
    curve = Curve()
    curve.add(np.asarray(scores, float), np.asarray(truth, bool))
    return curve


def test_a_threshold_reaches_both_floors_or_recall_first() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 3, 20_000)
    curve = curve_of(scores, rng.random(20_000) < 1 / (1 + np.exp(-scores)))
    free = curve.choose(Floors(0.0, 0.0))
    f1 = [2 * p.recall * p.precision / (p.recall + p.precision) for p in curve.points() if p.recall]
    assert 2 * free.recall * free.precision / (free.recall + free.precision) == max(f1)
    wanted = curve.choose(Floors(free.recall + 0.05, 0.5))
    assert free.recall + 0.05 <= wanted.recall < free.recall + 0.06 and wanted.delta < free.delta
    # No threshold is that precise: recall alone decides, and no larger threshold has it.
    alone = curve.choose(Floors(0.9, 0.999))
    assert 0.9 <= alone.recall < 0.91
    assert curve.choose(Floors(1.5, 0.0)).delta == -20


def test_a_fit_learns_masks_of_low_rank() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4096, 20)).astype(np.float32)
    truth = x @ rng.standard_normal((20, 3)) @ rng.standard_normal((3, 50)) > 1
    fit = _Fit(x, truth, 3, rng)
    before = (fit.rounded().scores(x) > 0) == truth
    for i in range(600):
        rows = rng.permutation(4096)[:512]
        fit.step(x[rows], truth[rows], 0.02 * (1 - i / 600))
    after = (fit.rounded().scores(x) > 0) == truth
    assert before.mean() < 0.8 and after.mean() > 0.985


def test_a_step_follows_the_gradient_of_the_cross_entropy() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((30, 4)).astype(np.float32)
    truth = rng.random((30, 5)) < 0.3

    def loss(parameters: list[Any]) -> float:
        first, first_bias, second, second_bias = (np.asarray(p, np.float64) for p in parameters)
        z = (x @ first + first_bias) @ second + second_bias
        return float((np.logaddexp(0, z) - truth * z).sum() / len(x))

    fit = _Fit(x, truth, 2, rng)
    start = [p.copy() for p in fit.parameters]
    fit.step(x, truth, 1e-3)
    # Adam's first step is the sign of the gradient times the rate.
    for k, (before, after) in enumerate(zip(start, fit.parameters, strict=True)):
        for index in np.ndindex(before.shape):
            up, down = ([p.copy() for p in start] for _ in range(2))
            up[k][index] += 1e-2
            down[k][index] -= 1e-2
            slope = loss(up) - loss(down)
            if abs(slope) > 1e-5:
                assert after[index] - before[index] == pytest.approx(-1e-3 * np.sign(slope), rel=0.05)


@pytest.fixture(scope="module")
def trained(found: TrainingTexts) -> TrainedPredictor:
    return train_predictor(load_demo(), found, seed=0, tell=quiet)


def test_other_seeds_train_other_predictors(found: TrainingTexts, trained: TrainedPredictor) -> None:
    """That equal seeds train equal ones is shown by the command, file by file."""
    other = train_predictor(load_demo(), found, ranks=Ranks(6, 2), seed=1, tell=quiet)
    assert other.metadata["rank_ffn"] == "6"
    assert not np.array_equal(other.ffn[0].in_weight[:6], trained.ffn[0].in_weight[:6])
    assert float(other.metadata["recall_ffn"]) >= 0.94  # whatever it takes


def test_a_short_training_beats_the_frequency_of_neurons(
    found: TrainingTexts, trained: TrainedPredictor
) -> None:
    """Predicting by frequency alone is what the biases start from; inputs must add to it."""
    checkpoint = load_demo()
    windows = {"code": heldout().code[:3]}
    ways = measure_ways(checkpoint, trained, windows)
    assert [way.name for way in ways] == [
        "plain", "true neurons", "predicted neurons", "true heads", "predicted neurons and heads",
    ]  # fmt: skip
    asks: list[Any] = []

    def keep(ask: Any, used: Any) -> None:
        if ask.part == "ffn":
            asks.append(ask.truth)

    decoder = SkippingDecoder(checkpoint.config, checkpoint.weights, all_active, observe=keep)
    for window in found.train[:20]:
        decoder.forward(window)
    frequency = [np.concatenate(asks[i::4]).mean(axis=0) for i in range(4)]
    asks.clear()
    for window in windows["code"]:
        decoder.forward(window)
    truth = np.concatenate([np.concatenate(asks[i::4]) for i in range(4)], axis=1)
    ours, constant = ways[2].counts("ffn"), Curve()
    constant.add(np.broadcast_to(np.concatenate(frequency), truth.shape) * 10, truth)
    by_frequency = constant.choose(Floors(ours.recall, 1.0))
    assert ours.recall > 0.85 and ours.precision > by_frequency.precision + 0.2


def test_ways_are_scored_like_the_plain_model() -> None:
    checkpoint = load_demo("reglu-llama-demo")
    windows = {"prose": heldout().prose[:2], "code": heldout().code[:2]}
    plain, neurons = measure_ways(checkpoint, None, windows)[:2]
    decoder = PlainDecoder(checkpoint.config, checkpoint.weights)
    for domain, own in windows.items():
        assert plain.perplexity(domain) == pytest.approx(decoder.perplexity(own), rel=1e-12)
        assert neurons.perplexity(domain) == pytest.approx(plain.perplexity(domain), rel=1e-9)
    assert plain.agreement == neurons.agreement == 1
    assert neurons.counts("ffn").recall == neurons.counts("ffn").precision == 1
    masks: list[Any] = []
    for window in (*windows["prose"], *windows["code"]):
        decoder.forward(window[:-1], record=lambda name, mask: masks.append(mask) if "mask" in name else None)
    assert neurons.counts("ffn").density == pytest.approx(np.mean([mask.mean() for mask in masks]))


def test_models_without_relu_are_refused(found: TrainingTexts) -> None:
    checkpoint = load_demo()
    other = replace(checkpoint, config=replace(checkpoint.config, activation="silu"))
    with pytest.raises(InputError, match="activation silu: its neurons are never exactly zero"):
        train_predictor(other, found, tell=quiet)
    with pytest.raises(InputError, match="ranks: read 0 and 16"):
        train_predictor(checkpoint, found, ranks=Ranks(0), tell=quiet)
