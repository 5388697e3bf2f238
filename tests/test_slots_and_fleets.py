"""Slots and budgets of notebook 16: each number is that of its own simulation."""

from __future__ import annotations

from functools import partial
from typing import Any

import IPython.display
import pytest

from helpers.chapters import n16
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
