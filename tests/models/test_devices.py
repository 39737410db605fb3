"""Devices: shipped figures follow from their sources, files are read strictly, a machine can be measured."""

import pytest

from comet_sim.actors import DeviceProfile
from comet_sim.errors import InputError
from comet_sim.models.devices import DEVICES, device_file, load_device
from comet_sim.models.measure_device import measure_device, step_count

FIGURES = "ring_multiply_adds_per_second = 1\nmemory_bytes_per_second = 2\nlaunch_ns = 3\n"


def test_shipped_rates_are_at_most_the_vendors_peaks():
    peaks = {"a100": 19.5e12 / 2 / 6, "a100-crypten": 19.5e12 / 2 / 16, "xeon-8458p": 44 * 2.7e9 * 16 / 6}
    for name, peak in peaks.items():
        assert 0.95 * peak < DEVICES[name].ring_ops <= peak, name
    assert all(device.source for device in DEVICES.values())


def test_cost_is_launches_and_the_slower_of_arithmetic_and_memory():
    device = DeviceProfile("x", 10**9, 2 * 10**9, 7, "")
    assert device.cost(100, 100, 1) == 7 + 100
    assert device.cost(100, 1000, 2) == 14 + 500
    assert device.cost(1, 1, 0) == 1  # a part of a nanosecond is a whole one


def test_a_written_device_is_read_back(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(device_file(DeviceProfile("mine", 5, 6, 7, 'a "quoted" source'), ["measured"]), "utf-8")
    assert load_device(str(path)) == DeviceProfile("mine", 5, 6, 7, 'a "quoted" source')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "ring_multiply_adds_per_second = 1.5\n",
            "ring_multiply_adds_per_second: read 1.5; accepted: a whole",
        ),
        (FIGURES + "lanch_ns = 2\n", "lanch_ns: unknown key; did you mean 'launch_ns'?"),
        (FIGURES.replace("3", "-1"), "launch_ns: read -1; accepted: 0 or more"),
        ("launch_ns = \n", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_clear_error(tmp_path, text, said):
    path = tmp_path / "bad.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=r"bad\.toml") as caught:
        load_device(str(path))
    assert said in str(caught.value)


def test_unknown_names_and_missing_files_are_errors():
    with pytest.raises(InputError, match="did you mean 'a100'"):
        load_device("a10")
    with pytest.raises(InputError, match=r"none\.toml cannot be read"):
        load_device("none.toml")


def test_measuring_finds_every_figure_and_tells_each_step():
    told = []
    found = measure_device("here", 1, lambda step, number: told.append((step, number)))
    assert [number for _, number in told] == list(range(1, step_count() + 1))
    assert tuple(step for step, _ in told) == found.steps
    profile = found.profile
    assert profile.ring_ops > 10**7 and profile.memory > 10**7 and 0 < profile.launch < 10**8
    fastest = max(found.steps, key=lambda step: step.ring_ops / step.time)
    # The roofline gives the fastest product about the time it took: launch is taken out and put back.
    assert fastest.ring_ops * 10**9 // profile.ring_ops <= fastest.time
