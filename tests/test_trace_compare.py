"""compare() returns "equal", or the first pass, layer, head, position and field that differ."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.recording.toy import record_toy
from helpers.sampling import Sampling
from helpers.trace import Trace, compare


def long() -> Trace:
    """A fresh trace of two layers: training, prefill and three decode steps, in both runs."""
    return record_toy(max_new_tokens=4, ban_eos=True, n_layers=2)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"ban_eos": True}, {"sampling": Sampling(1.3, seed=4)}], ids=str)
def test_cached_and_uncached_runs_are_equal(settings: dict[str, Any], n_layers: int) -> None:
    trace = record_toy(n_layers=n_layers, **settings)
    assert compare(trace.only_run("cached"), trace.only_run("uncached")) == "equal"


Change = Callable[[Trace], Any]


def decode(trace: Trace) -> Any:
    """The second decode step of the cached run: token 5, position 6."""
    return trace.run("cached").passes[3]


def part(**changed: Any) -> Change:
    """Change the part of that step."""
    return lambda trace: vars(decode(trace).parts[0]).update(changed)


def token(index: int, **changed: Any) -> Change:
    return lambda trace: vars(trace.sequences[0].tokens[index]).update(changed)


def weight(key: str, row: list[float]) -> Change:
    return lambda trace: trace.weights.update({key: np.array(row) * 65535})


def context(head: str, value: float) -> Change:
    return lambda trace: decode(trace).parts[0].contexts.update({head: [[value]]})


def out(trace: Trace) -> Any:
    return decode(trace).parts[0].out[0]


def logit(value: float) -> Change:
    """Change the logit of the third word."""
    return lambda trace: out(trace).top.__setitem__(2, ("delicious", value, 0.0))


TRAINING, DECODE = "cached, pass 0 (training): ", "cached, pass 3 (decode): "
NEWEST = (
    f"{DECODE}layer 0, head newest, position 6, attention weights: [0.0, 0.0, 0.0, 0.0, 0.0, 1.0] against"
)
Case = tuple[str, Change]  # the text that compare() returns, with "…" for any text, and the change
CASES: list[Case] = [
    ("cached, pass 4 (decode): … against the end: nothing", lambda t: t.run("cached").passes.pop()),
    (f"{DECODE}… against pass 3 (prefill): ", lambda t: setattr(decode(t), "phase", "prefill")),
    (f"{TRAINING}recorded heads: [(0, 0), …(1, 3)] against [(0, 0), ", lambda t: t.recorded.pop()),
    (f"{TRAINING}position 2, token: 'weather' against 'Weather'", token(1, text="Weather")),
    (
        "uncached, pass 0 (training): targets: [1, 2, 3, 4] against nothing",
        lambda t: setattr(t.run("uncached").passes[0].parts[0], "target", None),
    ),
    (f"{DECODE}new tokens: [(5, 6)] against [(4, 5)]", part(new=[(4, 5)])),
    (f"{DECODE}position 6, visible tokens: [(0, 6)] against [(1, 6)]", part(visible=[[(1, 6)]])),
    (f"{NEWEST} [0.0, 0.0, 0.0, 0.0, 0.0, 0.9]", weight("0.5.0.1", [0, 0, 0, 0, 0, 0.9])),
    (f"{DECODE}layer 0, head newest, position 6, context: [14.0] against [nan]", context("0.1", np.nan)),
    (f"{DECODE}outputs: 1 against 0", part(out=[])),
    (f"{DECODE}logits: …'delicious' 1.3222, '<eos>' 5.9583 against …'delicious' 9.0000", logit(9.0)),
    (f"{DECODE}chosen: 'nice' (token 6) against 'Today' (token 0)", lambda t: setattr(out(t), "chosen", 0)),
    (f"{DECODE}chosen: 'nice' (token 6) against 'warm' (token 6)", token(6, text="warm")),
]


@pytest.mark.parametrize(("message", "change"), CASES)
def test_one_planted_difference_is_found(message: str, change: Change) -> None:
    a, b = long(), long()
    change(b)
    assert re.match(".*".join(map(re.escape, message.split("…"))), compare(a, b))
    assert compare(b, a) != "equal", "compared the other way round, too"


def test_the_tolerance_is_relative_above_1() -> None:
    a = record_toy(["a"], [1e6], max_new_tokens=1)
    b = record_toy(["a"], [1e6 + 50], max_new_tokens=1)  # half of 1e-4 of it
    assert compare(a, b) == "equal"
    assert compare(a, b, tolerance=1e-5) != "equal"
    for off, equal in ((0.00009, True), (0.00011, False)):  # up to 1 it is absolute
        a, b = (record_toy(["a"], [0.0], max_new_tokens=1) for _ in "ab")
        b.run("cached").passes[1].parts[0].contexts["0.1"] = [[off]]
        assert (compare(a, b) == "equal") is equal


def test_two_tokens_with_equal_texts_are_two_candidates() -> None:
    a, b = long(), long()
    for trace in (a, b):
        out(trace).top[:] = [("s", 2.0, 0.5), ("s", 1.0, 0.2)]
    assert compare(a, b) == "equal"
    out(b).top[0] = ("s", 2.004, 0.5)
    assert compare(a, b).endswith("logits: 's' 2.0000, 's' 1.0000 against 's' 2.0040, 's' 1.0000")


def test_each_number_of_an_array_has_its_tolerance() -> None:
    a, b = long(), long()
    for trace, small in ((a, 1.0), (b, 1.001)):
        decode(trace).parts[0].contexts["0.1"] = [[1e6, small]]
    assert compare(a, b).endswith("context: [1000000.0, 1.0] against [1000000.0, 1.001]")


def test_a_head_without_a_name_is_numbered() -> None:
    a, b = long(), long()
    a.model.head_names = None
    context("1.0", 9.5)(b)
    assert "layer 1, head 0, position 6" in compare(a, b)


def test_contexts_that_were_not_recorded_are_not_compared() -> None:
    """A large model's trace has no contexts; its weights, logits and chosen tokens are still compared."""
    a, b = long(), long()
    for run in b.runs:
        for event in run.passes:
            event.parts[0].contexts.clear()
    assert compare(a, b) == compare(b, a) == "equal"
    logit(9.0)(b)
    assert compare(a, b) != "equal"


def test_another_number_of_runs_raises() -> None:
    with pytest.raises(ValueError, match="got 2 and 1 runs; expected the same number"):
        compare(long(), long().only_run("cached"))
