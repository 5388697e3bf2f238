"""The closed form agrees with what a recorder counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import toy
from helpers.cost.counts import ReplyCounts, reply_counts
from helpers.recording.toy import record_toy

WORDS = list(toy.NUMBERS)


def test_counts_of_the_long_run() -> None:
    assert reply_counts(4, 8, cached=False) == ReplyCounts(tokens_processed=60, pairs=276, entries_kept=0)
    assert reply_counts(4, 8) == ReplyCounts(tokens_processed=11, pairs=66, entries_kept=11)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "4", None])
def test_invalid_lengths_are_rejected(wrong: object) -> None:
    for lengths in ((wrong, 8), (4, wrong)):
        with pytest.raises(ValueError, match="expected a whole number, 1 or more"):
            reply_counts(*lengths)


@settings(max_examples=40)
@given(prompt=st.integers(1, 16), reply=st.integers(1, 12), n_layers=st.integers(1, 2))
def test_closed_form_matches_recorded_counts(prompt: int, reply: int, n_layers: int) -> None:
    words = [WORDS[n % len(WORDS)] for n in range(prompt)]
    trace = record_toy(words, max_new_tokens=reply, ban_eos=True, training=False, n_layers=n_layers)
    for run, cached in zip(trace.runs, (True, False), strict=True):
        names = "positions", "pairs"
        tokens_processed, pairs = (sum(step.counts[name] for step in run.steps) for name in names)
        recorded = ReplyCounts(tokens_processed, pairs, run.passes[-1].parts[0].kept[1])
        assert reply_counts(prompt, reply, cached) == recorded
