"""Named random streams: fixed for ever, and never shared by accident."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from comet_sim.kernel import generator, stream_key

parts = st.lists(st.one_of(st.text(max_size=8), st.integers(-300, 300)), max_size=4)


def test_known_values():
    # A change of these changes every published result.
    assert stream_key(0).hex() == "6b8364236f5158b373ca6ebef38f3479"
    assert stream_key(7, "dealer", 3).hex() == "68705221c67607854defc6e4a926bd72"
    assert generator(7, "dealer", 3).integers(0, 2**32, 3).tolist() == [116953548, 2961692046, 1430934458]


@given(parts, parts)
def test_different_names_have_different_keys(first, second):
    same = [(type(part), part) for part in first] == [(type(part), part) for part in second]
    assert (stream_key(1, *first) == stream_key(1, *second)) == same


def test_look_alikes():
    keys = [
        stream_key(*names) for names in [(1, "ab", "c"), (1, "a", "bc"), (1, "abc"), (1, 1), (1, "1"), (11,)]
    ]
    assert len(set(keys)) == len(keys)


def test_generators_are_independent_objects():
    first, second = generator(1, "x"), generator(1, "x")
    first.random(5)
    assert second.random() == generator(1, "x").random()
