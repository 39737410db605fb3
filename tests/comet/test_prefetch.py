"""Which holes are filled early: the estimate against one in fractions, the history against loops, what must hold."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from comet_sim.comet.prefetch import Chances, HeadHistory, choose, likely, plan_fills, wanted

ONE = 1 << 30
POLICIES = ["immediate", "merged", "fused"]
HEADS = 4
ROWS = st.integers(1, 9)


def _masks(rows: st.SearchStrategy[int] = ROWS) -> st.SearchStrategy[Any]:
    """Masks (sequences, tokens, K/V heads) of one or two sequences."""
    return st.tuples(st.integers(1, 2), rows).flatmap(lambda sizes: arrays(bool, (*sizes, HEADS)))


def _chances(next: list[int], ever: list[int]) -> Chances:
    return Chances(np.array(next, np.int64), np.array(ever, np.int64))


CHANCE = st.lists(st.integers(0, ONE), min_size=HEADS, max_size=HEADS)


def _by_fractions(
    policy: str, holes: Any, rows: Any, columns: Any, chances: Chances, head_dim: int
) -> tuple[Any, Fraction]:
    """The estimate as the design says it, in exact fractions; and how near to a tie it came, relatively."""
    left, rows, columns = holes.copy(), rows.copy(), columns.copy()
    filled, nearest = np.zeros_like(holes), Fraction(1)
    for b, g in np.ndindex(len(holes), HEADS):
        own = np.flatnonzero(left[b, :, g])
        if not len(own):
            continue
        now = 2 * head_dim * (not columns[g]) + sum(not rows[b, t] for t in own)
        ever, soon = Fraction(int(chances.ever[g]), ONE), Fraction(int(chances.next[g]), ONE)
        if policy == "immediate":
            later = ever * len(own) * (1 + 2 * head_dim)
        else:
            alone = Fraction(0)
            for t in own:
                chance = Fraction(1)
                for other in range(HEADS):
                    if other != g and left[b, t, other]:
                        chance *= 1 - Fraction(int(chances.next[other]), ONE)
                alone += chance
            later = ever * alone + (soon * 2 * head_dim if policy == "merged" else 0)
        if now:
            nearest = min(nearest, abs(later - now) / now)
        if now == 0 or now < later:
            filled[b, own, g] = True
            rows[b, own] = True
            columns[g] = True
            left[b, :, g] = False
    return filled, nearest


@pytest.mark.parametrize("policy", POLICIES)
@given(data=st.data(), holes=_masks(), head_dim=st.integers(1, 3), next=CHANCE, ever=CHANCE)
def test_the_estimate_is_the_designs(
    policy: Any, data: Any, holes: Any, head_dim: int, next: list[int], ever: list[int]
) -> None:
    rows = data.draw(arrays(bool, holes.shape[:2]))
    columns = data.draw(arrays(bool, HEADS))
    chances = _chances(next, ever)
    expected, nearest = _by_fractions(policy, holes, rows, columns, chances, head_dim)
    assume(nearest > Fraction(1, 1 << 20))
    np.testing.assert_array_equal(choose(policy, holes, rows, columns, chances, head_dim), expected)


def test_free_holes_are_filled_whatever_the_chances() -> None:
    holes = np.array([[[1, 0, 1], [0, 0, 1]]], bool)
    rows, columns = np.array([[True, False]]), np.array([True, True, True])
    never = Chances(np.zeros(3, np.int64), np.zeros(3, np.int64))
    # The first head's row and columns are sent anyway; the last one's second row is not.
    np.testing.assert_array_equal(choose("merged", holes, rows, columns, never, 8), [[[1, 0, 0], [0, 0, 0]]])


def test_a_head_that_is_filled_takes_its_rows_along_for_the_next() -> None:
    holes = np.ones((1, 3, 2), bool)
    rows, columns = np.zeros((1, 3), bool), np.ones(2, bool)
    sure, never = ONE, 0
    kept = choose("fused", holes, rows, columns, _chances([0, 0], [sure, never]), 1)
    assert not kept.any()  # 3 rows now, and as many later at most
    both = choose("merged", holes, rows, columns, _chances([ONE // 2, 0], [sure, never]), 4)
    assert both.all()  # the columns tip the first, and the second is free then


@given(active=_masks(st.integers(1, 12)), cuts=st.sets(st.integers(1, 11)))
def test_history_counts_what_followed_tokens_without_a_head(active: Any, cuts: set[int]) -> None:
    history = HeadHistory()
    for part in np.split(active, sorted(cut for cut in cuts if cut < active.shape[1]), axis=1):
        history.see(part)
    for g in range(HEADS):
        after = [bool(own[t + 1, g]) for own in active for t in range(active.shape[1] - 1) if not own[t, g]]
        soon = Fraction(1 + sum(after), 2 + len(after))
        for passes in (0, 1, 2, 7):
            chances = history.chances(passes)
            assert chances.next[g] == soon * ONE // 1
            assert int(chances.ever[g]) == pytest.approx(ONE * float(1 - (1 - soon) ** passes), abs=16)
        assert history.chances(None).ever[g] == ONE


def test_history_is_gone_after_a_new_order() -> None:
    history = HeadHistory()
    with pytest.raises(ValueError, match="no mask"):
        history.chances(1)
    history.see(np.array([[[0], [1], [0], [1]]], bool))
    assert history.chances(1).next.tolist() == [3 * ONE // 4]
    history.forget()
    assert history.chances(1).next.tolist() == [ONE // 2]
    # The first token after it has no predecessor.
    history.see(np.array([[[1]]], bool))
    assert history.chances(1).next.tolist() == [ONE // 2]


@pytest.mark.parametrize("policy", POLICIES)
@given(both=_masks(st.integers(1, 12)), past=st.integers(0, 6), next=CHANCE, ever=CHANCE)
@example(both=np.zeros((1, 2, HEADS), bool), past=0, next=[0] * 4, ever=[0] * 4)
def test_plans_fill_every_miss_and_nothing_twice(
    policy: Any, both: Any, past: int, next: list[int], ever: list[int]
) -> None:
    past = min(past, both.shape[1] - 1)
    holes, active = both[:, :past], both[:, past:]
    chances = _chances(next, ever)
    plain = plan_fills(policy, False, holes, active, chances, 2)
    np.testing.assert_array_equal(plain.fresh, wanted(active))
    np.testing.assert_array_equal(plain.stored, holes & active.any(1)[:, None])
    assert not plain.early.any()
    more = plan_fills(policy, True, holes, active, chances, 2)
    made = np.concatenate([np.zeros_like(holes), more.fresh], 1)
    stored = np.zeros_like(made)
    stored[:, : more.stored.shape[1]] = more.stored
    must = np.concatenate([plain.missed, plain.fresh], 1)
    assert not (made & stored).any()
    assert not (more.early & must).any()
    np.testing.assert_array_equal(made | stored, must | more.early)
    assert not (more.early[:, :past] & ~holes).any()
    # Of a single sequence, each head's are filled wholly or not at all (`immediate`: of the new tokens).
    first = 0 if policy != "immediate" else past
    open_before = np.concatenate([holes, np.ones_like(active)], 1)[:, first:]
    left = open_before & ~(made | stored)[:, first:]
    if len(both) == 1:
        assert not (left.any(1) & more.early[:, first:].any(1) & ~plain.used).any()


@pytest.mark.parametrize("policy", POLICIES)
@given(active=_masks())
def test_in_a_prompt_what_its_product_sends_anyway_is_filled(policy: Any, active: Any) -> None:
    never = _chances([0] * HEADS, [0] * HEADS)
    fills = plan_fills(policy, True, active[:, :0], active, never, 2)
    fresh = wanted(active)
    free = fresh.any(2)[:, :, None] & fresh.any((0, 1))
    # A head's holes are filled all or none: a row that nothing sends keeps them.
    kept = ~fresh & ~free
    expected = ~fresh & ~kept.any(1)[:, None]
    np.testing.assert_array_equal(fills.early, expected)


def test_likely_heads_are_those_more_likely_active_than_not() -> None:
    holes = np.array([[1, 1, 1, 0]], bool)
    chances = _chances([ONE // 2, ONE // 2 + 1, 0, ONE], [ONE] * 4)
    np.testing.assert_array_equal(likely(holes, chances), [[0, 1, 0, 0]])
