"""predictor.safetensors: what is written is read back, and every damage is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from comet_sim.comet.plain import Ask
from comet_sim.comet.predictor import predictor_shapes
from comet_sim.comet.predictor_file import LowRank, TrainedPredictor, load_predictor, save_predictor
from comet_sim.errors import InputError
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.demo import demo_folder, load_demo

CONFIG = resolve_model("opt-demo").config


def low_rank(rank: int, outputs: int, rng: np.random.Generator) -> LowRank:
    shapes = ((CONFIG.hidden, rank), (rank,), (rank, outputs), (outputs,))
    return LowRank(*(rng.standard_normal(shape).astype(np.float32) for shape in shapes))


def made(*, heads: bool = True, **metadata: str) -> TrainedPredictor:
    rng = np.random.default_rng(3)
    ffn = tuple(low_rank(5, CONFIG.ffn, rng) for _ in range(CONFIG.layers))
    own = tuple(low_rank(3, CONFIG.heads, rng) for _ in range(CONFIG.layers * heads))
    return TrainedPredictor(ffn, own, -0.25, 0.5 if heads else 0.0, metadata)


@pytest.mark.parametrize("heads", [True, False])
@pytest.mark.parametrize("half", [True, False])
def test_what_is_written_is_read_back(tmp_path: Path, heads: bool, half: bool) -> None:
    file, ours = tmp_path / "p.safetensors", made(heads=heads, source="here")
    save_predictor(file, ours, half=half)
    theirs = load_predictor(file, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"]
    assert (theirs.delta_ffn, theirs.delta_heads) == (ours.delta_ffn, ours.delta_heads)
    assert theirs.metadata["source"] == "here" and theirs.metadata["format"] == "comet-sim predictor 1"
    assert theirs.tensors().keys() == ours.tensors().keys() and len(theirs.heads) == 4 * heads
    for name, values in ours.tensors().items():
        expected = values.astype(np.float16).astype(np.float32) if half else values
        np.testing.assert_array_equal(theirs.tensors()[name], expected)
        assert theirs.tensors()[name].dtype == np.float32


def test_names_and_shapes_are_those_the_private_predictor_reads() -> None:
    wanted: dict[str, Any] = {}
    for i in range(CONFIG.layers):
        wanted |= predictor_shapes(f"layer{i}/predictor/ffn", CONFIG.hidden, 5, CONFIG.ffn)
        wanted |= predictor_shapes(f"layer{i}/predictor/heads", CONFIG.hidden, 3, CONFIG.heads)
    assert {name: values.shape for name, values in made().tensors().items()} == wanted


def test_equal_predictors_give_equal_bytes(tmp_path: Path) -> None:
    contents = set()
    for number in range(5):
        file = tmp_path / str(number)
        save_predictor(file, made(a="1", b="2", c="3", d="4"))
        contents.add(file.read_bytes())
    assert len(contents) == 1


def test_scores_and_masks_are_those_of_the_formula() -> None:
    predictor = made()
    x = np.random.default_rng(0).standard_normal((7, CONFIG.hidden))
    low = predictor.heads[2]
    scores = np.array([
        [((row @ low.in_weight + low.in_bias) * low.out_weight[:, j]).sum() + low.out_bias[j] for j in range(8)]
        for row in x
    ])  # fmt: skip
    np.testing.assert_allclose(low.scores(x), scores, rtol=1e-5, atol=1e-5)
    ask = Ask("heads", 2, x, np.zeros((7, 8), bool), x)
    np.testing.assert_array_equal(predictor.mask(ask), scores > 0.5)
    np.testing.assert_array_equal(predictor.mask(ask, -1.5), scores > -1.5)
    assert made(heads=False).mask(ask).all()


def damaged(tensors: dict[str, Any], metadata: dict[str, str], how: str) -> None:
    name = "layer1/predictor/ffn/out/weight"
    match how:
        case "missing":
            del tensors[name]
        case "part of heads":
            del tensors["layer3/predictor/heads/in/bias"]
        case "shape":
            tensors[name] = tensors[name].T.copy()
        case "flat":
            tensors["layer0/predictor/ffn/in/weight"] = np.zeros(4, np.float32)
        case "rank 0":
            tensors["layer0/predictor/ffn/in/weight"] = np.zeros((160, 0), np.float32)
        case "layer":
            tensors["layer4/predictor/ffn/in/bias"] = np.zeros(5, np.float32)
        case "type":
            tensors[name] = tensors[name].astype(np.float64)
        case "nan":
            tensors[name][0, 0] = np.nan
        case "format":
            metadata["format"] = "2"
        case "no format":
            del metadata["format"]
        case "no delta":
            del metadata["delta_ffn"]
        case "delta":
            metadata["delta_heads"] = "much"
        case "infinite":
            metadata["delta_ffn"] = "-inf"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("missing", "tensor layer1/predictor/ffn/out/weight: missing, opt-demo has 4 layers"),
        ("part of heads", "tensor layer3/predictor/heads/in/bias: missing"),
        ("shape", r"tensor layer1/predictor/ffn/out/weight: shape \(640, 5\), opt-demo asks for \(5, 640\)"),
        ("flat", r"tensor layer0/predictor/ffn/in/weight: shape \(4,\), opt-demo asks for \(160, "),
        ("rank 0", r"tensor layer0/predictor/ffn/in/weight: shape \(160, 0\)"),
        ("layer", "tensor layer4/predictor/ffn/in/bias: not part of a predictor of opt-demo"),
        ("type", "tensor layer1/predictor/ffn/out/weight: type F64, accepted: F16, F32"),
        ("nan", "tensor layer1/predictor/ffn/out/weight: holds values that are not finite"),
        ("format", "format: read '2', accepted: 'comet-sim predictor 1'"),
        ("no format", "format: read None"),
        ("no delta", "delta_ffn: read None, accepted: a finite number"),
        ("delta", "delta_heads: read 'much'"),
        ("infinite", "delta_ffn: read '-inf'"),
    ],
)
def test_every_damage_is_named(tmp_path: Path, how: str, said: str) -> None:
    tensors = {name: values.copy() for name, values in made().tensors().items()}
    metadata = {"format": "comet-sim predictor 1", "delta_ffn": "0", "delta_heads": "0"}
    damaged(tensors, metadata, how)
    file = tmp_path / "bad.safetensors"
    save_file(tensors, file, metadata=metadata)
    with pytest.raises(InputError, match=f"^{file}: {said}"):
        load_predictor(file, CONFIG)


def test_no_file_and_no_safetensors(tmp_path: Path) -> None:
    file = tmp_path / "none.safetensors"
    with pytest.raises(InputError, match=f"{file}: no such file; make it with: comet-sim train-predictor"):
        load_predictor(file, CONFIG)
    save_predictor(file, made())
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=f"{file}: not a whole safetensors file"):
        load_predictor(file, CONFIG)


def test_a_predictor_of_another_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoint = load_demo()
    file = tmp_path / "p.safetensors"
    save_predictor(file, made(checkpoint=checkpoint.digest))
    assert load_predictor(file, checkpoint).metadata["checkpoint"] == checkpoint.digest
    with pytest.raises(InputError, match="trained for the checkpoint with digest"):
        load_predictor(file, replace(checkpoint, digest="0" * 64))
    load_predictor(file, CONFIG)  # a configuration alone has no digest
    save_predictor(file, made())
    load_predictor(file, checkpoint)  # the file does not say


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "p.safetensors"
    save_predictor(file, made())
    before = file.read_bytes()
    large = made()
    large.ffn[0].in_bias[0] = 1e6
    with pytest.raises(InputError, match=r"tensor layer0/predictor/ffn/in/bias: .* not finite in float16"):
        save_predictor(file, large)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        save_predictor(file, made(source="new"))
    assert [path.name for path in tmp_path.iterdir()] == ["p.safetensors"] and file.read_bytes() == before


@pytest.mark.parametrize("name", ["opt-demo", "reglu-llama-demo"])
def test_shipped_files_are_small_and_belong_to_their_checkpoints(name: str) -> None:
    file = demo_folder(name) / "predictor.safetensors"
    predictor = load_predictor(file, load_demo(name))
    assert predictor.metadata["checkpoint"] == load_demo(name).digest
    assert file.stat().st_size < 300_000
    assert predictor.ffn[0].rank == 32
