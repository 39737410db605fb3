"""An error in a party's task reaches the caller as itself; two unrelated errors at once stay a group."""

import traceback

import pytest

from comet_sim.errors import CometSimError, InputError, ungrouped
from comet_sim.kernel import DeadlockError
from comet_sim.roles import dealer, owner, server, user
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import simulate, simulate_async

TABLE = {
    "model": "opt-demo",
    "execution": "shape",
    "workload": {"prompt_tokens": 2, "output_tokens": 1},
}


def failing(error):
    async def program(*arguments, **named):
        raise error

    return program


def test_an_error_in_a_party_is_raised_as_itself(monkeypatch, tmp_path):
    monkeypatch.setattr(server, "serve", failing(InputError("no such layer")))
    with pytest.raises(InputError, match=r"^no such layer$") as caught:
        simulate(scenario_from_dict(TABLE), folder=tmp_path)
    # Both servers raised the same error, told once, and with the frames of where it happened.
    assert not hasattr(caught.value, "__notes__")
    assert "program" in "".join(traceback.format_exception(caught.value))
    assert "ExceptionGroup" not in "".join(traceback.format_exception(caught.value))
    assert not list(tmp_path.rglob("*.parquet*"))


async def run_async():
    return await simulate_async(scenario_from_dict(TABLE))


def test_the_same_in_async_code(monkeypatch):
    import asyncio

    monkeypatch.setattr(user, "ask", failing(InputError("no prompt")))
    with pytest.raises(InputError, match=r"^no prompt$"):
        asyncio.run(run_async())


def test_an_internal_error_of_one_party_keeps_its_type(monkeypatch):
    monkeypatch.setattr(owner, "share_weights", failing(ZeroDivisionError("oops")))
    with pytest.raises(ZeroDivisionError, match="oops"):
        simulate(scenario_from_dict(TABLE))


def test_two_errors_of_which_one_is_a_bug_both_show(monkeypatch):
    monkeypatch.setattr(owner, "share_weights", failing(ZeroDivisionError("oops")))
    monkeypatch.setattr(dealer, "send_seeds", failing(InputError("no seed")))
    with pytest.raises(ExceptionGroup) as caught:
        simulate(scenario_from_dict(TABLE))
    told = "".join(traceback.format_exception(caught.value))
    assert "oops" in told and "no seed" in told


def test_errors_made_on_purpose_become_the_first_with_notes():
    inner = ExceptionGroup("inner", [InputError("one"), InputError("one")])
    with pytest.raises(InputError, match=r"^one\b") as caught, ungrouped():
        raise ExceptionGroup("outer", [inner, CometSimError("two")])
    assert caught.value.__notes__ == ["and: two"]


def test_what_caused_an_error_stays_with_it():
    def fail():
        try:
            raise KeyError("lost")
        except KeyError:
            raise RuntimeError("while looking")  # noqa: B904, the implicit context is what is tested

    with pytest.raises(RuntimeError) as caught, ungrouped():
        try:
            fail()
        except RuntimeError as error:
            raise ExceptionGroup("tasks", [error]) from None
    assert isinstance(caught.value.__context__, KeyError)


def test_a_deadlock_is_one_error(monkeypatch):
    async def silent(*arguments, **named):
        return None

    monkeypatch.setattr(dealer, "send_seeds", silent)
    with pytest.raises(DeadlockError, match="server0"):
        simulate(scenario_from_dict(TABLE))
