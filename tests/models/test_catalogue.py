from __future__ import annotations

import math
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from comet_sim.errors import InputError
from comet_sim.models.catalogue import list_models, resolve_model
from comet_sim.models.demo import DATA, DEMO_NAMES, demo_folder, heldout, load_demo
from comet_sim.models.plain import PlainDecoder
from comet_sim.models.tensors import shapes
from comet_sim.models.tokenizer import TextTokenizer

PUBLISHED = {
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama2-7b-silu": 6_738_415_616,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    """Three sources must agree: the published count, the formula, and the shapes a run would share."""
    model = resolve_model(name)
    assert model.kind == "shapes"
    assert model.config.parameters == PUBLISHED[name]
    assert sum(math.prod(shape) for shape in shapes(model.config).values()) == PUBLISHED[name]
    with (DATA / "catalogue.toml").open("rb") as stream:
        assert tomllib.load(stream)["models"][name]["parameters"] == PUBLISHED[name]
    with pytest.raises(InputError, match=f"{name}: only its shapes are known"):
        model.load()


def test_list_names_every_model_once_and_each_resolves() -> None:
    names = [model.name for model in list_models()]
    assert names == [*DEMO_NAMES, *PUBLISHED]
    assert [resolve_model(name) for name in names] == list(list_models())


def test_paths_and_names(tmp_path: Path, saved_opt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model(str(saved_opt)).kind == "checkpoint"
    assert resolve_model("opt-demo").load().config.parameters == 1_606_400
    monkeypatch.chdir(saved_opt.parent)
    assert resolve_model("tiny").name == "tiny"
    (tmp_path / "opt-demo").symlink_to(saved_opt)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("opt-demo").kind == "demo"  # a stray folder must not replace a known model
    assert resolve_model("./opt-demo").kind == "checkpoint"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("opt-31b", "did you mean .*opt-30b"),
        ("OPT-13B", "did you mean opt-13b"),
        ("opt_demo", "did you mean opt-demo"),
        ("llama-7b", "did you mean llama2-7b"),
        ("zzzz", "accepted: opt-demo, reglu-llama-demo, opt-1.3b"),
        ("", "not known"),
        ("some/where", "no such folder"),
    ],
)
def test_unknown_models(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_model(text)


def test_heldout_windows_fit_the_demo_model() -> None:
    windows = heldout()
    assert windows.prose.shape == windows.code.shape == (96, 128)
    assert len(windows.prose_documents) == len(windows.code_documents) == 96
    # The prompts of every experiment: eight documents of each kind, not eight windows of one.
    assert len(set(windows.prose_documents[:8])) == len(set(windows.code_documents[:8])) == 8
    prompts = windows.prompts(16)
    assert prompts.shape == (16, 16)
    assert (prompts[8] == windows.code[0, :16]).all()
    tokenizer = TextTokenizer(demo_folder() / "tokenizer.json")
    assert "Jacob" in windows.prose_documents[0]
    assert tokenizer.decode(windows.code[0].tolist()).startswith('"""')


@pytest.mark.parametrize("name", DEMO_NAMES)
def test_perplexity_is_the_one_stated_in_source_md(name: str) -> None:
    demo, windows = load_demo(name), heldout()
    plain = PlainDecoder(demo.config, demo.weights)
    stated = (demo_folder(name) / "SOURCE.md").read_text(encoding="utf-8")
    prose, code = plain.perplexity(windows.prose), plain.perplexity(windows.code)
    assert f"perplexity {prose:.1f} (prose) and {code:.1f} (code)" in stated


def test_tokenizer_round_trip_and_errors(tmp_path: Path) -> None:
    demo = load_demo()
    assert demo.tokenizer is not None
    tokenizer = TextTokenizer(demo.tokenizer)
    assert tokenizer.vocab == demo.config.vocab
    text = "def f(x):\n    return x + 1  # über\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    with pytest.raises(InputError, match="token id 2048"):
        tokenizer.decode([2048])
    with pytest.raises(InputError, match="no such file"):
        TextTokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"not a tokenizer\.json"):
        TextTokenizer(tmp_path / "tokenizer.json")


def test_models_need_no_torch() -> None:
    """The `models` extra is optional: running the demo must work without it."""
    program = (
        "import sys; sys.modules['torch'] = None; sys.modules['transformers'] = None\n"
        "from comet_sim.models.catalogue import resolve_model\n"
        "from comet_sim.models.plain import PlainDecoder\n"
        "c = resolve_model('opt-demo').load(); PlainDecoder(c.config, c.weights).generate([5, 6], 2)\n"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=root)
