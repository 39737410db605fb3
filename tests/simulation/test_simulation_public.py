"""What a user of the Python names sees: they are listed, and a result fits in a line."""

import subprocess
import sys
from pathlib import Path

import comet_sim


def test_dir_lists_the_public_names_without_importing_them():
    script = "import comet_sim, sys; print(*dir(comet_sim)); print('numpy' in sys.modules)"
    root = Path(comet_sim.__file__).parents[1]
    found = subprocess.run(
        (sys.executable, "-c", script), cwd=root, capture_output=True, text=True, check=True
    )
    names, heavy = found.stdout.splitlines()
    assert set(comet_sim.__all__) <= set(names.split()) and heavy == "False"
    assert all(getattr(comet_sim, name) for name in comet_sim.__all__)


def test_a_result_is_shown_in_a_line():
    small = {"workload.prompt_tokens": 2, "workload.output_tokens": 2}
    result = comet_sim.simulate(comet_sim.load_scenario("demo", small))
    shape = comet_sim.simulate(comet_sim.load_scenario("demo", {**small, "execution": "shape"}))
    for each in (result, shape):
        shown = repr(each)
        assert shown.startswith("<Result of dense-crypten-accurate: ") and len(shown) < 200
        assert "\n" not in shown and each.summary["digest"] in shown
    assert "text " in repr(result) and "text " not in repr(shape)
