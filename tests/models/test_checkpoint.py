from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from comet_sim.errors import InputError
from comet_sim.models.checkpoint import load_checkpoint, load_config
from comet_sim.models.config import norm_names
from comet_sim.models.metadata import METADATA_FILE, update_metadata
from comet_sim.models.tensors import shapes
from comet_sim.scenario import Scenario, WorkloadSpec
from comet_sim.simulation import simulate


@pytest.fixture
def folder(saved_opt: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_opt, tmp_path / "tiny"))


def test_names_shapes_and_order_agree(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    assert {k: v.shape for k, v in checkpoint.weights.items()} == shapes(checkpoint.config)
    assert list(checkpoint.weights) == list(shapes(checkpoint.config))
    assert "lm_head" not in checkpoint.weights  # a tied head must not be shared or counted twice
    assert sum(w.size for w in checkpoint.weights.values()) == checkpoint.config.parameters
    assert checkpoint.config.name == "tiny"
    assert checkpoint.tokenizer is None
    assert all(not w.flags.writeable and w.dtype == np.float32 for w in checkpoint.weights.values())


def test_linear_weights_are_transposed_and_tables_are_not(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    weights = load_checkpoint(folder).weights
    prefix = "model.decoder."
    np.testing.assert_array_equal(weights["layer1/ffn/fc1/weight"], stored[f"{prefix}layers.1.fc1.weight"].T)
    np.testing.assert_array_equal(weights["positions"], stored[f"{prefix}embed_positions.weight"])
    # Transformers calls both the second norm of a layer and the last norm of the model final_layer_norm.
    np.testing.assert_array_equal(
        weights["layer0/ffn/norm/bias"], stored[f"{prefix}layers.0.final_layer_norm.bias"]
    )
    np.testing.assert_array_equal(weights["final_norm/bias"], stored[f"{prefix}final_layer_norm.bias"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_sharded_and_every_stored_type_exactly(make_opt: Any, tmp_path: Path, dtype: str) -> None:
    import torch

    model = make_opt(tie_word_embeddings=False).to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "sharded", max_shard_size="4KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    weights = load_checkpoint(tmp_path / "sharded").weights
    wide = model.state_dict()
    assert weights["embed"].dtype == (np.float64 if dtype == "float64" else np.float32)
    for name, theirs in (
        ("embed", "model.decoder.embed_tokens.weight"),
        ("lm_head", "lm_head.weight"),
        ("layer0/attention/o/bias", "model.decoder.layers.0.self_attn.out_proj.bias"),
    ):
        np.testing.assert_array_equal(weights[name].astype(np.float64), wide[theirs].double().numpy())


@pytest.mark.parametrize("prefix", ["", "decoder."])
def test_prefixes_and_a_stored_tied_head_are_accepted(folder: Path, prefix: str) -> None:
    """The published OPT checkpoints were converted from several classes, each with its own prefix."""
    expected = load_checkpoint(folder).weights
    stored = load_file(folder / "model.safetensors")
    renamed = {prefix + k.removeprefix("model.decoder."): v for k, v in stored.items()}
    renamed["lm_head.weight"] = renamed[f"{prefix}embed_tokens.weight"].copy()
    save_file(renamed, folder / "model.safetensors")
    weights = load_checkpoint(folder).weights
    assert all(np.array_equal(weights[k], expected[k]) for k in expected)


def _edit(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        stored = load_file(folder / "model.safetensors")
        change(stored)
        save_file(stored, folder / "model.safetensors")

    return damage


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


FC1 = "model.decoder.layers.0.fc1.weight"
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no folder": (shutil.rmtree, "not a checkpoint folder"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: no such file"),
    "bad json": (lambda f: (f / "config.json").write_text("{") and None, "config.json: not readable as JSON"),
    "json list": (lambda f: (f / "config.json").write_text("[]") and None, "expected a JSON object"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "found neither model.safetensors"),
    "truncated": (_cut, "model.safetensors: not a whole safetensors file"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b"") and None, "not a whole safetensors file"),
    "tensor gone": (_edit(lambda s: s.pop(FC1)), f"tensor {FC1.removeprefix('model.decoder.')}: missing"),
    "wrong shape": (_edit(lambda s: s.update({FC1: s[FC1].T.copy()})), r"shape \(16, 24\), .* \(24, 16\)"),
    "unknown": (_edit(lambda s: s.update(more=s[FC1])), "tensor more: not part of this opt model"),
    "twice": (_edit(lambda s: s.update({FC1.removeprefix("model."): s[FC1].copy()})), "stored twice"),
    "integers": (_edit(lambda s: s.update({FC1: s[FC1].astype(np.int8)})), "type I8, supported: F16"),
    "not finite": (_edit(lambda s: s.update({FC1: s[FC1] * np.float32("inf")})), "not finite"),
}


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_damaged_checkpoints_are_refused_by_name(folder: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    damage(folder)
    with pytest.raises(InputError, match=message) as caught:
        load_checkpoint(folder)
    assert str(folder) in str(caught.value)


def test_shard_index_is_checked(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = folder / "model.safetensors.index.json"
    for weight_map, message in (
        ({"x": "absent.safetensors"}, "absent.safetensors: missing"),
        ({"x": "../part.safetensors"}, "outside the checkpoint folder"),
        ({}, "weight_map: expected an object"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(InputError, match=message):
            load_checkpoint(folder)


def test_digest_follows_the_weights_only(folder: Path) -> None:
    before = load_checkpoint(folder).digest
    (folder / METADATA_FILE).write_text("{}")
    assert load_checkpoint(folder).digest == before
    _edit(lambda s: s[FC1].__setitem__((0, 0), 9.0))(folder)
    assert load_checkpoint(folder).digest != before


@pytest.mark.parametrize(
    "metadata",
    [
        {"norm_scales": {"layer9/ffn/norm": 1}},
        {"norm_scales": {"final_norm": 0.5}},
        {"norm_scales": {"final_norm": True}},
        {"norm_scales": []},
        {"norm_scales": {"final_norm": 31}},
        {"norms_outside": ["layer9/ffn/norm"]},
        {"head_thresholds": [1.0]},
        {"head_thresholds": ["1", "2"]},
    ],
)
def test_bad_metadata_is_refused(folder: Path, metadata: dict[str, Any]) -> None:
    (folder / METADATA_FILE).write_text(json.dumps(metadata))
    with pytest.raises(InputError, match=f"{METADATA_FILE}: {next(iter(metadata))}"):
        load_checkpoint(folder)


def test_a_model_without_norm_scales_warns(folder: Path) -> None:
    (warning,) = load_checkpoint(folder).warnings
    assert "model tiny: no norm scales" in warning and "comet_sim.models.calibrate" in warning
    scales = dict.fromkeys(norm_names(load_config(folder)), 0)
    (folder / METADATA_FILE).write_text(json.dumps({"norm_scales": scales}))
    assert load_checkpoint(folder).warnings == ()
    some = {"norm_scales": {"final_norm": 1}, "norms_outside": ["final_norm"]}
    (folder / METADATA_FILE).write_text(json.dumps(some))
    missing, outside = load_checkpoint(folder).warnings
    assert (
        "layer0/attention/norm, layer0/ffn/norm, layer1/attention/norm and 1 more: no norm scales" in missing
    )
    assert "final_norm: inputs vary too much" in outside


@pytest.mark.parametrize(("size", "bits"), [(2.0**31, 16), (-(2.0**31), 16), (2.0**15, 24)])
def test_weights_too_large_for_fixed_point_are_refused(folder: Path, size: float, bits: int) -> None:
    _edit(lambda s: s[FC1].__setitem__((1, 2), size))(folder)
    checkpoint = load_checkpoint(folder)
    with pytest.raises(InputError) as caught:
        checkpoint.check_range(bits)
    message = str(caught.value)
    assert all(
        part in message for part in ("model.safetensors", FC1, f"read {size:.6g}", f"2^{63 - 2 * bits}")
    )
    checkpoint.check_range(bits - 1)


def run_shapes(folder: Path, execution: str = "shape") -> Any:
    ids = {"prompt_ids": (3, 4, 5)} if execution == "exact" else {"prompt_tokens": 3}
    workload = WorkloadSpec(output_tokens=2, **ids)  # type: ignore[arg-type]
    return simulate(Scenario(model=str(folder), execution=execution, workload=workload))  # type: ignore[arg-type]


def test_a_shape_run_needs_the_configuration_only(folder: Path) -> None:
    exact = run_shapes(folder, "exact")
    assert any("no norm scales" in warning for warning in exact.summary["warnings"])
    (folder / "model.safetensors").unlink()
    shape = run_shapes(folder)
    assert shape.trace.digest == exact.trace.digest
    assert shape.summary["warnings"] == []
    with pytest.raises(InputError, match=r"found neither model\.safetensors"):
        run_shapes(folder, "exact")


def test_an_exact_run_refuses_weights_that_are_too_large(folder: Path) -> None:
    _edit(lambda s: s[FC1].__setitem__((1, 2), 1e10))(folder)
    with pytest.raises(InputError, match=r"fc1\.weight: read 1e\+10, too large"):
        run_shapes(folder, "exact")
    run_shapes(folder)


def test_old_metadata_survives_a_failed_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / METADATA_FILE
    file.write_text('{"source": "me"}')

    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        with pytest.raises(InputError, match="cannot be written: No space left on device"):
            update_metadata(file, {"norm_scales": {}})
    assert file.read_text() == '{"source": "me"}'
    assert sorted(item.name for item in folder.iterdir() if item.name.startswith(".")) == []
    update_metadata(file, {"norm_scales": {}})
    assert json.loads(file.read_text()) == {"source": "me", "norm_scales": {}}
