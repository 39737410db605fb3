"""A vault opens for its party's tasks only: what would be a leak in a deployment is an error here."""

import asyncio

import pytest

from comet_sim.actors import Strand, acting_party
from comet_sim.errors import PrivacyError


async def read(party, name="key"):
    return party.vault[name]


async def fill(party, value):
    party.vault["key"] = value


def refused(error: ExceptionGroup) -> PrivacyError:
    """Unpack the one error of a (nested) task group."""
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, PrivacyError)
    return error


def test_owner_reads_what_it_stored(make_stage):
    stage = make_stage()
    stage.play(a=fill(stage.a, 7))
    assert stage.play(a=read(stage.a)) == {"a": 7}


@pytest.mark.parametrize("access", ["read", "write", "contains"])
def test_another_party_is_refused(make_stage, access):
    stage = make_stage()

    async def intrude():
        if access == "read":
            return stage.a.vault["key"]
        if access == "write":
            stage.a.vault["key"] = 0
        return "key" in stage.a.vault

    stage.play(a=fill(stage.a, 7))
    with pytest.raises(ExceptionGroup) as caught:
        stage.play(b=intrude())
    assert str(refused(caught.value)) == "party b tried to use 'key' in the vault of a"
    assert stage.play(a=read(stage.a)) == {"a": 7}


def test_code_outside_any_party_is_refused(make_stage):
    """The composition root and observers are no party: they must not look either."""
    stage = make_stage()
    stage.play(a=fill(stage.a, 7))
    with pytest.raises(PrivacyError, match="code outside any party tried to use 'key' in the vault of a"):
        stage.a.vault["key"]
    assert "7" not in repr(stage.a.vault)


def test_gathered_children_act_for_their_party(make_stage):
    stage = make_stage()

    async def both(strand, party):
        return await strand.gather(lambda child: read(party), lambda child: read(party))

    stage.play(a=fill(stage.a, 7))
    assert stage.play(a=both(Strand(stage.a), stage.a)) == {"a": [7, 7]}
    with pytest.raises(ExceptionGroup) as caught:
        stage.play(b=both(Strand(stage.b), stage.a))
    assert "party b" in str(caught.value.exceptions[0].exceptions[0])


def test_tasks_of_a_partys_program_act_for_it_after_it_waited(make_stage):
    """The acting party travels with the task's context, not with whoever ran last."""
    stage = make_stage()

    async def slow(party, other):
        party.vault["key"] = party.name
        await asyncio.sleep(0.001)
        inner = asyncio.create_task(read(party))
        assert await inner == party.name
        assert acting_party() == party.name
        with pytest.raises(PrivacyError):
            other.vault["key"]

    stage.play(a=slow(stage.a, stage.b), b=slow(stage.b, stage.a))
    assert acting_party() is None


def test_acting_ends_with_the_program_even_when_it_fails(make_stage):
    stage = make_stage()

    async def fail():
        raise ValueError("broken")

    async def outside():
        with pytest.raises(ValueError, match="broken"):
            await stage.a.act(fail())
        assert acting_party() is None

    stage.loop.run_until_complete(outside())


def test_the_same_party_of_another_simulation_is_refused(make_stage):
    """Every run has a server0: the guard once compared names, so a nested run could read the outer one's vault."""
    first, second = make_stage(), make_stage()
    first.play(a=fill(first.a, 7))
    with pytest.raises(ExceptionGroup) as caught:
        second.play(a=read(first.a))
    assert str(refused(caught.value)) == "party a of another simulation tried to use 'key' in the vault of a"
