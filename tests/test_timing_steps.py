"""Timing a model: a step's parts add up, replies are equal with and without cache, hooks are removed."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from helpers.chapters import n09
from helpers.model.generate import generate
from helpers.timing import steps
from tests.tiny import tiny

torch.set_num_threads(1)
MODEL = tiny()


class NumberTokenizer:
    """A tokenizer whose words are numbers, equal to their ids."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def words(self, ids: list[int]) -> list[str]:
        return [str(n) for n in ids]


def test_prefill_and_step_are_timed_for_each_prompt() -> None:
    ms = steps.time_prefill_and_step(MODEL, [2, 30], turns=1)
    assert [len(ms.prefill), len(ms.step)] == [2, 2]
    assert min(ms.prefill + ms.step) > 0


def test_fastest_ms_ignores_the_first_call_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([0.001, 0.014, 0.008, 0.001, 0.03])  # the first and the fourth warm up
    monkeypatch.setattr(steps, "seconds_per_call", lambda task: task())
    assert steps.fastest_ms({"a": lambda: next(seconds)}, turns=2) == {"a": pytest.approx(8)}
    assert not list(seconds)


def test_a_ledger_keeps_steps_and_measures_their_parts() -> None:
    ledger = n09.measure_step_times(MODEL, [2, 9, 30], [1.0, 2.0, 3.0], turns=1)
    assert ledger.step_ms == {2: 1, 30: 3}
    assert [0 < ms < 1 for parts in ledger.part_ms.values() for ms in parts.values()] == [True] * 4
    assert 0 < abs(ledger.copy_ms) < 1


def test_the_rest_and_copies_complete_a_ledgers_bars() -> None:
    parts = {8: {"attention": 0.25, "matrices": 0.5}, 90: {"attention": 1.25, "matrices": 0.5}}
    ledger = n09.StepTimeLedger({8: 1.0, 90: 2.0}, parts, 1.5)
    (short, _), (long, ms), (growing, most) = ledger.waterfall_bars().values()
    assert [*short.values()] == [(0, 0.25), (0.25, 0.75), (0.75, 1)]
    assert [*long.values()] == [(0, 1.25), (1.25, 1.75), (1.75, 2)]
    assert (ms, most, growing.pop("copies")) == (2, 3.5, (2, 3.5))
    assert growing == long
    assert (ledger.part_growth_ms("attention"), ledger.part_growth_ms("matrices")) == (1, 0)
    over = n09.StepTimeLedger({8: 1.0, 90: 1.5}, parts, -0.1).waterfall_bars()["with a growing cache"][0]
    assert [*over.values()] == [(0, 1.25), (1.25, 1.75), (1.75, 1.75), (1.5, 1.5)]


def test_each_part_is_timed_and_hooks_are_removed() -> None:
    seconds = dict.fromkeys(steps.PARTS, 0.0)
    step = steps.decode_step_task(MODEL, 5)
    with pytest.raises(ValueError, match="token"), steps.accumulate_part_seconds(MODEL, seconds):  # noqa: PT012
        step()
        MODEL(torch.tensor([[10**6]]))
    assert min(seconds.values()) > 0
    before = dict(seconds)
    step()
    assert seconds == before


@pytest.mark.parametrize("eos", [(), (-1,)])
def test_timed_replies_equal_generate(eos: tuple[int, ...]) -> None:
    prompt, tokenizer = [3, 1, 4, 1, 5], NumberTokenizer()
    output_ids = [*generate(MODEL, prompt, 6, eos_ids=[])]
    model: Any = tiny(eos_ids=tuple(output_ids[2:3]) if eos else ())  # the third word ends it
    replies = n09.time_reply_with_and_without_cache(model, tokenizer, "3 1 4 1 5", 6, turns=1)  # type: ignore[arg-type]
    n = output_ids.index(output_ids[2]) + 1 if eos else 6
    for reply in replies.values():
        assert reply.words == [str(token) for token in output_ids[:n]]
        assert len(reply.pass_ms) == n
    assert replies["with"].n_entries == [*range(5, 5 + n)]
    assert replies["without"].n_entries == [0] * n
