"""Suites and single variants chosen in a scenario: what runs is what was asked for, and costs what it says."""

from dataclasses import asdict

import pytest

from comet_sim.baselines import SUITES
from comet_sim.errors import InputError
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.decoder import Layout
from comet_sim.roles.plan import Plan
from comet_sim.roles.preflight import largest_piece
from comet_sim.scenario import scenario_from_dict
from comet_sim.scenario.program import layout_of, plan_of, suite_of
from comet_sim.simulation import simulate
from comet_sim.testing import assert_bytes, assert_rounds

LEAN = asdict(SUITES["crypten-lean"].variants)


def scenario(*systems, execution="shape", prompt=8, output=2, **protocol):
    return scenario_from_dict(
        {
            "model": "opt-demo",
            "execution": execution,
            "workload": {"prompt_tokens": prompt, "output_tokens": output},
            "protocol": protocol,
            "systems": list(systems) or [{}],
        }
    )


def run(system, **more):
    return simulate(scenario(system, **more))


@pytest.fixture(scope="module")
def by_suite():
    """One run as shapes by each suite."""
    return {name: run({"suite": name}) for name in SUITES}


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_is_chosen_by_name_or_as_a_system(name, by_suite):
    """Both ways are the same run; the traces of different suites differ, so the name cannot be ignored."""
    by_name = run({"name": name})
    digests = {suite: result.trace.digest for suite, result in by_suite.items()}
    assert by_name.trace.digest == digests.pop(name)
    assert by_suite[name].summary["suite"] == by_name.summary["suite"] == name
    assert by_name.trace.digest not in digests.values()


def test_single_variants_replace_the_suites_own():
    """All of crypten-lean's choices on top of crypten are crypten-lean: the same bytes at the same times."""
    chosen = run({"suite": "crypten", "variants": LEAN})
    lean = run({"suite": "crypten-lean"})
    assert chosen.trace.digest == lean.trace.digest
    assert chosen.summary["variants"] == LEAN
    assert lean.summary["variants"] == {}


@pytest.mark.parametrize("name", SUITES)
def test_an_exact_run_of_a_suite_has_the_trace_of_its_shapes(name, by_suite):
    """With the argmax left out and trees of halvings too: nothing on the wire depends on a value."""
    exact, shape = run({"suite": name}, execution="exact"), by_suite[name]
    assert exact.trace.digest == shape.trace.digest
    assert exact.summary["dealer"]["unused_elements"] == 0, "dealt for a step the servers do not take"


@pytest.mark.parametrize(
    ("variants", "relu", "rounds"),
    [
        ({}, 232, 9),
        ({"adder": "single-open"}, 176, 9),
        ({"max": "pairwise"}, 232, 9),
        ({"where": "one-product"}, 232, 9),
    ],
)
def test_one_variant_changes_what_it_names_alone(variants, relu, rounds):
    """ReLU has an adder and nothing else to choose: 640 wide, 8 tokens, at each of 4 layers."""
    config = resolve_model("opt-demo").config
    result = run({"suite": "crypten", "variants": variants})
    assert_bytes(result, op="token0/layer0/ffn/relu", exactly=relu * 8 * config.ffn)
    assert_rounds(result, op="token0/layer0/ffn/relu", exactly=rounds)


def test_every_way_of_the_maximum_says_the_same_text():
    """The ways differ in cost, not in what they compute."""
    ids = {way: run({"variants": {"max": way}}, execution="exact").token_ids for way in ("tree", "pairwise")}
    plain = run({}, execution="exact").token_ids
    assert ids == {"tree": plain, "pairwise": plain}
    assert run({"suite": "crypten-lean"}, execution="exact").token_ids == plain


def test_systems_that_differ_in_a_variant_have_names_of_their_own():
    """Run folders are called by them."""
    made = scenario({}, {"variants": {"max": "tree", "argmax": False}}, {"name": "crypten-lean"})
    assert [system.label for system in made.systems] == [
        "dense", "dense-max-tree-argmax-false", "crypten-lean",
    ]  # fmt: skip
    with pytest.raises(InputError, match="is there twice"):
        scenario({"variants": {"max": "tree"}}, {"variants": {"max": "tree"}})


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        ({"max": "bitonic"}, ["variants.max", "accelerated_cascade", "'bitonic'"]),
        ({"adders": "crypten"}, ["variants.adders", "'adder'", "max, argmax, adder, where, erf, tanh"]),
        ({"argmax": "perhaps"}, ["variants.argmax", "'perhaps'"]),
    ],
)
def test_variants_that_mean_nothing_are_refused(variants, said):
    with pytest.raises(InputError) as caught:
        scenario({"variants": variants})
    for part in said:
        assert part in str(caught.value)


def test_a_suite_refuses_a_choice_it_does_not_have():
    with pytest.raises(InputError, match=r"'crypten' has no choice 'shuffle'; it has max, .*tanh"):
        SUITES["crypten"].choosing({"shuffle": True})


# -- a stock that cannot hold a piece ----------------------------------------------------------------------


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("protocol", [{}, {"qkv": "sequence", "final_norm": "all", "reveal": "servers"}])
def test_the_largest_piece_is_that_of_the_run(suite, protocol):
    """One layer is walked; the run has all of them, and asks for nothing larger."""
    made = scenario({"suite": suite}, prompt=11, output=3, **protocol)
    config = resolve_model("opt-demo").config
    elements, op = largest_piece(
        config, plan_of(made, config, 11), suite_of(made.systems[0]), layout_of(made)
    )
    dealt = simulate(made).trace.dealer
    assert max(dealt["correction"].to_pylist()) == elements
    assert op in set(dealt["path"].to_pylist())


def test_the_largest_piece_may_come_last():
    """All pairs of a long row: with more tokens cached than were in the prompt, the last step's are the largest."""
    config = resolve_model("opt-demo").config
    suite = SUITES["crypten"].choosing({"max": "pairwise"})
    _, op = largest_piece(config, Plan(1, 120, config.vocab), suite, Layout())
    assert op == "token119/layer0/attention/softmax/max/pairwise/ltz"


def test_a_stock_below_the_largest_piece_is_refused_when_the_scenario_is_read():
    """The message names the piece, its bytes, and what would do; that much is accepted, and kept."""
    with pytest.raises(InputError) as caught:
        scenario({}, dealer="streamed", dealer_stock="81919B")
    for part in (
        "protocol.dealer_stock", "81,912 bytes", "81,920 bytes", "token0/layer0/ffn/relu/ltz", '"81920B"',
    ):  # fmt: skip
        assert part in str(caught.value)
    result = simulate(scenario({}, dealer="streamed", dealer_stock="81920B"))
    assert 8 * result.summary["dealer"]["stock_peak_elements"] == 81_920


# -- warnings ----------------------------------------------------------------------------------------------


def test_an_ordinary_run_has_no_warnings():
    assert run({}, execution="exact").summary["warnings"] == []


@pytest.mark.parametrize(("bits", "said"), [(11, "too few digits"), (21, "may wrap"), (24, "may wrap")])
def test_fraction_bits_that_go_wrong_are_warned_about(bits, said):
    """Shape runs too: their figures are right, but a real run with these bits would say something else."""
    (warning,) = run({}, fraction_bits=bits).summary["warnings"]
    assert f"protocol.fraction_bits is {bits}" in warning
    assert said in warning


def test_wraps_are_warned_about():
    """At 24 bits the demo model wraps; nobody but the auditor can see it."""
    result = run({}, execution="exact", prompt=16, output=4, fraction_bits=24)
    wraps = result.summary["truncation"]["wraps"]
    assert wraps > 0
    assert any(f"{wraps:,} of" in warning and "wrapped" in warning for warning in result.summary["warnings"])
    silent = run({}, execution="exact", prompt=16, output=4, fraction_bits=24, audit=False).summary
    assert len(silent["warnings"]) == 1, "without an auditor nobody counts"


@pytest.mark.parametrize("bits", [12, 20])
def test_bits_at_the_ends_of_the_range_pass_without_a_word(bits):
    assert run({}, fraction_bits=bits).summary["warnings"] == []
