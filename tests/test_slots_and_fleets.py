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
    machine = fleet.Machine(SERVICE.model, SERVICE.card, n16.REACHED, 1e12, slots, budget)
    times = fleet.colocated(machine, fleet.chat_turns(SERVICE, n16.N, 0, 2.0, hits=False), 1)
    first, gap = fleet.p99_waits(times)
    assert n16.choices(SERVICE, 2.0, False)[slots, budget] == pytest.approx((first, gap))


def test_the_recipe_leads_to_a_filled_box() -> None:
    least, most, low, high = (number for *_, number in n16.recipe(SERVICE))
    fine = n16.Choices(n16.choices(SERVICE, 2.0, False), (1000, 25), most).fine
    assert fine == [(16, 512)]
    assert least <= 16 <= most
    assert low <= 512 <= high
    step = partial(step_time, bandwidth_reached=n16.REACHED, compute_reached=n16.REACHED)
    for budget, fits in ((high, True), (high + 1, False)):
        chunk = budget - least
        texts = [*[(SERVICE.context, 1)] * least, (8775 - chunk, chunk)]
        assert (step(SERVICE.model, SERVICE.card, texts).total <= SERVICE.itl_slo) == fits


def test_slots_that_fit_leave_space_for_idle_chats() -> None:
    slots = n16.slots_that_fit(SERVICE, True)
    fit = map(SERVICE.idle_chats_that_fit, (slots, slots + 1))
    assert [n >= SERVICE.idle_chats for n in fit] == [True, False]


def test_published_steps_are_within_their_bound() -> None:
    for (users, *_), (name, line) in zip(n16.PUBLISHED, n16.steps_measured().items(), strict=True):
        tokens, bound, ms, share = line
        assert (name, tokens) == (str(users), 1152)
        assert bound == pytest.approx(1000 * (13.21e9 + users * 1152 * 2**19) / 2.039e12, rel=1e-3)
        assert 0.6 < share == bound / ms < 0.9


def test_changing_a_knob_changes_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(IPython.display, "display", lambda bundle, raw, **_: shown.append(bundle))
    explorer = n16.Map(SERVICE, ttft_slo=1.0)
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
    machine = fleet.Machine(SERVICE.model, SERVICE.card, 0.7, 25e9, slots=8, budget=64)
    asked = fleet.chat_turns(SERVICE, 24, 0, 2.0, hits=False)
    tried = n20.in_chunks(machine, asked, 3, [*n20.BUDGETS, n20.WHOLE])
    assert [one.how for one in tried] == ["256 tokens", "512 tokens", "1,024 tokens", "whole prompts"]
    for one, budget in zip(tried, [*n20.BUDGETS, 10**6], strict=True):
        times = fleet.colocated(replace(machine, budget=budget), asked, 3)
        assert [one.first, one.gap] == pytest.approx(fleet.p99_waits(times))
    divided = n20.disaggregated(machine, asked, 8)
    assert [one.how for one in divided] == ["4 + 4"]
    assert divided == [n20.tried(8, "4 + 4", fleet.disaggregated(machine, asked, 4, 4))]

    def way(machine: fleet.Machine, those: fleet.Arrivals, cards: int) -> list[n20.Tried]:
        share = 1 / cards if those is asked else 0.0
        return [n20.Tried(cards, how, share * first, 20.0) for how, first in (("a", 900.0), ("b", 880.0))]

    assert n20.fewest(way, machine, asked, 1, first=300, gap=20) == n20.Tried(3, "b", 880 / 3, 20.0)
    assert n20.fewest(way, machine, asked, 4, first=300, gap=20).cards == 4
    assert n20.fewest(n20.disaggregated, machine, asked, 1, first=1e9, gap=1e9) == divided[0]
    prompt = max(machine.seconds([(len(one.prompt),) * 2]) for _, one in asked)
    for limits in ({"first": 1000 * prompt - 1, "gap": 1e9}, {"first": 1e9, "gap": math.nan}):
        with pytest.raises(ValueError, match="are never reached: where no request waits for another, 99 of"):
            n20.fewest(partial(n20.in_chunks, budgets=[n20.WHOLE]), machine, asked, 1, **limits)
