"""Slots and budgets of notebook 16, and fleets of notebook 20: each number is that of its own simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import IPython.display
import pytest

from helpers.chapters import n16, n20
from helpers.cost.service import Service
from helpers.cost.step import step_time
from helpers.serve import fleet
from tests.pictures import misplaced

SERVICE = Service()


@pytest.mark.parametrize(("slots", "budget"), [(8, 256), (64, 512)])
def test_a_box_equals_its_own_simulation(slots: int, budget: int) -> None:
    """Also where slots that are never used up were not simulated again."""
    machine = fleet.Machine(SERVICE.model, SERVICE.card, n16.REACHED_SHARE, 1e12, slots, budget)
    times = fleet.colocated(
        machine, fleet.chat_arrivals(SERVICE, n16.N_REQUESTS, 0, 2.0, prefix_cached=False), 1
    )
    first, gap = fleet.p99_waits(times)
    assert n16.simulate_waits(SERVICE, 2.0, False)[slots, budget] == pytest.approx((first, gap))


def test_the_recipe_leads_to_a_filled_box() -> None:
    least, most, low, high = (number for *_, number in n16.slot_and_budget_limits(SERVICE))
    fine = n16.WaitMap(
        n16.simulate_waits(SERVICE, 2.0, False), n16.P99Waits(1000, 25), most
    ).settings_within_limits
    assert fine == [(16, 512)]
    assert least <= 16 <= most
    assert low <= 512 <= high
    step = partial(step_time, bandwidth_reached=n16.REACHED_SHARE, compute_reached=n16.REACHED_SHARE)
    for budget, fits in ((high, True), (high + 1, False)):
        chunk = budget - least
        texts = [*[(SERVICE.mean_context, 1)] * least, (8775 - chunk, chunk)]
        assert (step(SERVICE.model, SERVICE.card, texts).total <= SERVICE.itl_slo) == fits


def test_slots_that_fit_leave_space_for_idle_chats() -> None:
    slots = n16.count_slots_that_fit(SERVICE, True)
    fit = map(SERVICE.idle_chats_that_fit, (slots, slots + 1))
    assert [n >= SERVICE.idle_chats for n in fit] == [True, False]


def test_published_steps_are_within_their_bound() -> None:
    for (users, *_), (name, line) in zip(
        n16.PUBLISHED_STEP_MS, n16.measured_and_predicted_steps().items(), strict=True
    ):
        tokens, bound, ms, share = line
        assert (name, tokens) == (str(users), 1152)
        assert bound == pytest.approx(1000 * (13.21e9 + users * 1152 * 2**19) / 2.039e12, rel=1e-3)
        assert 0.6 < share == bound / ms < 0.9


def test_changing_a_knob_changes_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(IPython.display, "display", lambda bundle, raw, **_: shown.append(bundle))
    explorer = n16.SlotBudgetExplorer(SERVICE, ttft_slo=1.0)
    explorer._ipython_display_()
    assert "A prompt has 8,775 tokens" in shown[1]["text/html"]
    assert misplaced(explorer.still().figure()) == []
    *knobs, _, output, picture, _ = explorer.widget.children
    assert "met with 16 slots with 512." in output.value
    knobs[4].value = 300
    assert "No choice meets both" in output.value
    knobs[3].value = True
    assert "300 tokens to process" in output.value
    assert "met with 16 slots with 64" in output.value
    assert "692" in picture.value


def test_fewest_adds_cards_until_both_limits_are_met() -> None:
    machine = fleet.Machine(SERVICE.model, SERVICE.card, 0.7, 25e9, slots=8, token_budget=64)
    asked = fleet.chat_arrivals(SERVICE, 24, 0, 2.0, prefix_cached=False)
    tried = n20.simulate_chunked(machine, asked, 3, [*n20.BUDGETS, n20.WHOLE_PROMPT_BUDGET])
    assert [one.usage for one in tried] == ["256 tokens", "512 tokens", "1,024 tokens", "whole prompts"]
    for one, budget in zip(tried, [*n20.BUDGETS, 10**6], strict=True):
        times = fleet.colocated(replace(machine, token_budget=budget), asked, 3)
        assert [one.first_word_ms, one.gap_ms] == pytest.approx(fleet.p99_waits(times))
    divided = n20.simulate_disaggregated(machine, asked, 8)
    assert [one.usage for one in divided] == ["4 + 4"]
    assert divided == [n20.summarize_fleet(8, "4 + 4", fleet.disaggregated(machine, asked, 4, 4))]

    def way(machine: fleet.Machine, those: fleet.Arrivals, cards: int) -> list[n20.SimulatedFleet]:
        share = 1 / cards if those is asked else 0.0
        return [
            n20.SimulatedFleet(cards, how, share * first, 20.0) for how, first in (("a", 900.0), ("b", 880.0))
        ]

    assert n20.smallest_fleet(
        way, machine, asked, 1, max_first_word_ms=300, max_gap_ms=20
    ) == n20.SimulatedFleet(3, "b", 880 / 3, 20.0)
    assert n20.smallest_fleet(way, machine, asked, 4, max_first_word_ms=300, max_gap_ms=20).n_cards == 4
    assert (
        n20.smallest_fleet(
            n20.simulate_disaggregated, machine, asked, 1, max_first_word_ms=1e9, max_gap_ms=1e9
        )
        == divided[0]
    )
    prompt = max(machine.step_seconds([(0, len(one.prompt))]) for _, one in asked)
    for limits in ((1000 * prompt - 1, 1e9), (1e9, math.nan)):
        with pytest.raises(ValueError, match="are never reached: where no request waits for another, 99 of"):
            n20.smallest_fleet(
                partial(n20.simulate_chunked, budgets=[n20.WHOLE_PROMPT_BUDGET]), machine, asked, 1, *limits
            )
