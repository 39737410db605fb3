"""Run folders: what stays after success, failure and interrupt."""

import json
import os
import signal
import tomllib
from pathlib import Path

import pytest

from comet_sim.errors import InputError
from comet_sim.scenario import (
    RunFolder,
    prepare,
    run_name,
    scenario_from_dict,
    shielded,
    write_summary,
    write_whole,
)


@pytest.fixture
def scenario():
    return scenario_from_dict({"model": "opt-demo", "workload": {"prompt_tokens": 4}})


def test_names_are_the_next_free_ones(tmp_path, scenario):
    names = [RunFolder.create(tmp_path / "runs", "demo", scenario).path.name for _ in range(3)]
    assert names == ["demo", "demo-2", "demo-3"]
    assert (
        tomllib.loads((tmp_path / "runs/demo/scenario.toml").read_text(encoding="utf-8"))["model"]
        == "opt-demo"
    )


def test_a_system_appears_when_it_has_finished(tmp_path, scenario):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    with folder.system("dense") as partial:
        write_summary(partial, {"text": "é"})
        assert not (folder.path / "dense").exists()
    folder.close()
    assert json.loads((folder.path / "dense/summary.json").read_text(encoding="utf-8")) == {"text": "é"}
    assert sorted(each.name for each in folder.path.iterdir()) == ["dense", "scenario.toml"]
    assert folder.kept() == f"kept {folder.path / 'dense'}"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_unfinished_system_is_removed_and_the_finished_stays(tmp_path, scenario, error):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    with folder.system("dense"):
        pass
    with pytest.raises(error), folder.system("other") as partial:
        (partial / "trace").mkdir()
        raise error
    folder.close()
    assert sorted(each.name for each in folder.path.iterdir()) == ["dense", "scenario.toml"]


def test_nothing_stays_if_no_system_has_finished(tmp_path, scenario):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    with pytest.raises(ValueError), folder.system("dense"):
        raise ValueError
    folder.close()
    assert list(tmp_path.iterdir()) == [] and folder.kept() == "nothing was kept"


def test_unwritable_place(tmp_path, scenario):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: .*--out"):
        RunFolder.create(tmp_path / "file", "demo", scenario)


def test_a_summary_that_cannot_be_written_leaves_no_part_of_it(tmp_path):
    with pytest.raises(TypeError):
        write_summary(tmp_path, {"bad": object()})
    assert list(tmp_path.iterdir()) == []


def test_prompts(scenario):
    window = prepare(scenario).prompt
    assert window.tokens == 4 and window.ids is not None and len(window.ids) == 4
    by_id = scenario_from_dict({"model": "opt-demo", "workload": {"prompt_ids": list(window.ids)}})
    assert prepare(by_id).prompt == window
    shape = scenario_from_dict({"model": "opt-6.7b", "execution": "shape", "workload": {"prompt_tokens": 9}})
    assert prepare(shape).prompt.ids is None and prepare(shape).prompt.tokens == 9


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("demo", "demo"),
        ("opt-1.3b-dense", "opt-1.3b-dense"),
        ("anchors/crypten-table", "crypten-table"),
        ("my.file.toml", "my.file"),
        ("scenario.toml", "scenario"),
        ("runs/demo/scenario.toml", "demo"),
        ("runs/demo-2/scenario.toml", "demo"),
        ("runs/llama-2/scenario.toml", "llama-2"),  # not the second run of `llama`: there is no first
        ("elsewhere/scenario.toml", "scenario"),  # no run folder
    ],
)
def test_a_run_again_is_called_like_the_first(tmp_path, monkeypatch, file, name):
    monkeypatch.chdir(tmp_path)
    for run in ("demo", "demo-2", "llama-2"):
        (tmp_path / "runs" / run / "dense").mkdir(parents=True)
        (tmp_path / "runs" / run / "dense" / "summary.json").write_text("{}")
    assert run_name(file) == name
    assert run_name(Path(file)) == name


def full_disk(*arguments, **named):
    raise OSError(28, "No space left on device")


def test_a_scenario_that_cannot_be_written_leaves_no_folder(tmp_path, scenario, monkeypatch):
    monkeypatch.setattr("comet_sim.scenario.runs.write_whole", full_disk)
    with pytest.raises(InputError, match="cannot be written: No space left"):
        RunFolder.create(tmp_path / "runs", "demo", scenario)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_folder_that_stays_is_not_called_gone(tmp_path, scenario, monkeypatch):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors: None)
    folder.close()
    assert folder.kept() == f"{folder.path} could not be removed"


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, "old")
    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_new_file_never_replaces_one_even_if_it_comes_late(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, "theirs", new=True)
    with pytest.raises(InputError, match="there already"):
        write_whole(path, "ours", new=True)
    monkeypatch.setattr("os.path.lexists", lambda path: False)  # as if theirs came after we looked
    with pytest.raises(InputError, match="there already"):
        write_whole(path, "ours", new=True)
    assert path.read_text() == "theirs" and list(tmp_path.iterdir()) == [path]


def test_a_new_file_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr("os.link", full_disk)
    write_whole(tmp_path / "file", "text", new=True)
    assert (tmp_path / "file").read_text() == "text" and len(list(tmp_path.iterdir())) == 1


def test_what_is_no_file_is_written_to_and_links_stay(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    (tmp_path / "link").symlink_to("target")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "text"


def test_an_interrupt_waits_for_a_shielded_step():
    done = []
    with pytest.raises(KeyboardInterrupt), shielded():
        signal.raise_signal(signal.SIGINT)
        done.append(True)
    assert done and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_a_folder_is_made_leaves_none(tmp_path, scenario, monkeypatch):
    def write(path, text):
        signal.raise_signal(signal.SIGINT)
        write_whole(path, text)

    monkeypatch.setattr("comet_sim.scenario.runs.write_whole", write)
    with pytest.raises(KeyboardInterrupt):
        RunFolder.create(tmp_path, "demo", scenario)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_a_system_gets_its_name_keeps_it(tmp_path, scenario, monkeypatch):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    rename = Path.rename

    def interrupted(path, target):
        signal.raise_signal(signal.SIGINT)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), folder.system("dense"):
        pass
    folder.close()
    assert folder.kept() == f"kept {folder.path / 'dense'}" and (folder.path / "dense").is_dir()
