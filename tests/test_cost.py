"""The closed forms say what a recorder counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import toy
from helpers.cost import counts
from helpers.recording.toy import record_toy
from helpers.trace import Pass, Trace

WORDS = list(toy.NUMBERS)


def recorded(prompt: int, reply: int, n_layers: int = 1) -> Trace:
    """A reply of exactly `reply` tokens, which it has when `<eos>` is banned."""
    words = [WORDS[n % len(WORDS)] for n in range(prompt)]
    return record_toy(words, max_new=reply, ban_eos=True, training=False, n_layers=n_layers)


def counted(event: Pass) -> counts.Counts:
    return counts.Counts(
        event.counts["positions"], event.counts["pairs"], event.counts["rows_read"], event.parts[0].kept[1]
    )


@settings(deadline=None, max_examples=60)
@given(prompt=st.integers(1, 40), reply=st.integers(1, 30), n_layers=st.integers(1, 2))
def test_every_pass_costs_what_was_counted(prompt: int, reply: int, n_layers: int) -> None:
    trace = recorded(prompt, reply, n_layers)
    for name, cached in (("cached", True), ("uncached", False)):
        seen = [counted(event) for event in trace.run(name).passes]
        assert counts.passes(prompt, reply, cached) == seen
        total = counts.Counts(
            sum(work.tokens_run for work in seen),
            sum(work.pairs for work in seen),
            sum(work.rows_read for work in seen),
            seen[-1].rows_kept,
        )
        assert counts.whole_reply(prompt, reply, cached) == total


def test_the_long_run() -> None:
    without, with_it = counts.whole_reply(4, 8, cached=False), counts.whole_reply(4, 8)
    assert (without.tokens_run, without.pairs, without.rows_kept) == (60, 276, 0)
    assert (with_it.tokens_run, with_it.pairs, with_it.rows_kept) == (11, 66, 11)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "4", None])
def test_a_wrong_count_is_refused(wrong: object) -> None:
    calls = [
        lambda: counts.prefill(wrong),  # type: ignore[arg-type]
        lambda: counts.decode_step(wrong),  # type: ignore[arg-type]
        lambda: counts.passes(4, wrong),  # type: ignore[arg-type]
        lambda: counts.whole_reply(wrong, 8),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises(ValueError, match="expected a whole number, 1 or more"):
            call()


def test_a_cache_is_what_is_counted_with_if_nothing_is_said() -> None:
    assert counts.passes(4, 8) == counts.passes(4, 8, cached=True)
    assert counts.decode_step(5) == counts.decode_step(5, cached=True)
