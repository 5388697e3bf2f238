"""compare() says "equal", or the first pass, layer, head, position and field where two traces part."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers import toy
from helpers.recording.toy import record_toy
from helpers.trace import Drop, Other, Output, Trace, compare

LONG: dict[str, Any] = {"max_new": 4, "ban_eos": True, "n_layers": 2}


def long() -> Trace:
    """A fresh trace of two layers: training, prefill and three decode steps, in both runs."""
    return record_toy(**LONG)


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize("settings", [{}, {"ban_eos": True}, {"temperature": 1.3, "seed": 4}], ids=str)
def test_cached_and_uncached_give_the_same_result(settings: dict[str, Any], n_layers: int) -> None:
    trace = record_toy(n_layers=n_layers, **settings)
    same = compare(trace.only("cached"), trace.only("uncached"))
    assert (bool(same), str(same), repr(same)) == (True, "equal", "equal")


@pytest.mark.parametrize("n_layers", [1, 2])
def test_dots_and_rules_give_the_same_result(n_layers: int) -> None:
    dots, rules = (
        record_toy(form=form, max_new=4, ban_eos=True, n_layers=n_layers) for form in ("dots", "rules")
    )
    assert compare(dots.only("uncached"), rules)
    assert compare(dots.only("cached"), rules)
    assert compare(dots.only("uncached"), rules, tolerance=1e-10)


def test_cached_and_uncached_do_other_work() -> None:
    trace = record_toy(max_new=3, ban_eos=True)
    work = compare(trace.only("cached"), trace.only("uncached"), what="work")
    assert not work
    assert str(work) == "cached, pass 2 (decode): counts positions: 1 against 5"
    assert compare(trace, record_toy(max_new=3, ban_eos=True), what="work")


def test_dots_and_rules_have_other_shapes() -> None:
    dots, rules = record_toy().only("uncached"), record_toy(form="rules")
    where = "uncached, pass 0 (training): layer 0, shape of q: [1, 4, 4, 2] against nothing"
    assert str(compare(dots, rules, what="work")) == where


def test_other_numbers_part_at_the_first_row_that_sees_them() -> None:
    a, b = (record_toy(toy.PROMPT, [10, 20, 1, so]) for so in (5, 5.5))
    where = "cached, pass 0 (training): layer 0, head even, position 4, context: [12.5] against [12.75]"
    assert str(compare(a, b)) == where


Change = Callable[[Trace], Any]


def decode(trace: Trace) -> Any:
    """The second decode step of the cached run: token 5, position 6."""
    return trace.run("cached").passes[3]


def part(trace: Trace) -> Any:
    return decode(trace).parts[0]


def set_weight(key: str, row: list[float]) -> Change:
    return lambda trace: trace.weights.update({key: np.round(np.array(row) * 65535).astype("<u2")})


def set_logit(place: int, logit: float) -> Change:
    def change(trace: Trace) -> None:
        word, _, p = part(trace).out[0].top[place]
        part(trace).out[0].top[place] = (word, logit, p)

    return change


def drop(place: int, event: Drop | Other) -> Change:
    return lambda trace: trace.run("cached").events.insert(place, event)


AT = "cached, pass 3 (decode): "
EVICTED = Drop(0, [(0, 2)], "evicted", "Two rows leave.")
DROPPED: dict[str, tuple[Change, str]] = {
    "a drop": (
        drop(3, EVICTED),
        "cached, before pass 3: nothing against drop of rows [(0, 2)] of sequence 0 (evicted)",
    ),
    "a drop at the end": (
        drop(5, EVICTED),
        "cached, after the last pass: nothing against drop of rows [(0, 2)] of sequence 0 (evicted)",
    ),
    "an event of a later kind": (
        drop(0, Other("swap", "The rows move.")),
        "cached, before pass 0: nothing against swap",
    ),
}
RESULT: dict[str, tuple[Change, str]] = {
    "phase": (lambda t: setattr(decode(t), "phase", "verify"), "cached, pass 3: decode against verify"),
    "new": (lambda t: setattr(part(t), "new", [(4, 5)]), f"{AT}new tokens: [(5, 6)] against [(4, 5)]"),
    "visible": (
        lambda t: setattr(part(t), "visible", [[(1, 6)]]),
        f"{AT}position 6, visible tokens: [(0, 6)] against [(1, 6)]",
    ),
    "weights": (
        set_weight("0.5.1.3", [0.2, 0.2, 0.2, 0.2, 0.2, 0]),
        f"{AT}layer 1, head all, position 6, attention weights: "
        "[0.1667, 0.1667, 0.1667, 0.1667, 0.1667, 0.1667] against [0.2, 0.2, 0.2, 0.2, 0.2, 0.0]",
    ),
    "weights of the prompt": (
        set_weight("0.2.0.2", [0.999, 0.001, 0]),
        "cached, pass 0 (training): layer 0, head first, position 3, attention weights: "
        "[1.0, 0.0, 0.0] against [0.999, 0.001, 0.0]",
    ),
    "weights missing": (
        lambda t: t.weights.pop("0.5.0.1"),
        f"{AT}layer 0, head newest, position 6, attention weights: "
        "[0.0, 0.0, 0.0, 0.0, 0.0, 1.0] against nothing",
    ),
    "weights too few": (
        set_weight("0.5.0.1", [0, 1]),
        f"{AT}layer 0, head newest, position 6, attention weights: "
        "[0.0, 0.0, 0.0, 0.0, 0.0, 1.0] against [0.0, 1.0]",
    ),
    "context": (
        lambda t: part(t).contexts.update({"1.0": [[9.5]]}),
        f"{AT}layer 1, head even, position 6, context: [12.4306] against [9.5]",
    ),
    "context nan": (
        lambda t: part(t).contexts.update({"0.1": [[float("nan")]]}),
        f"{AT}layer 0, head newest, position 6, context: [14.0] against [nan]",
    ),
    "contexts missing": (
        lambda t: part(t).contexts.clear(),
        f"{AT}layer 0, head even, position 6, context: [13.0] against nothing",
    ),
    "a prompt's text": (
        lambda t: setattr(t.sequences[0].tokens[1], "text", "Weather"),
        "cached, pass 0 (training): position 2, token: 'weather' against 'Weather'",
    ),
    "a target": (
        lambda t: setattr(t.run("uncached").passes[0].parts[0], "target", [1, 2, 3, 3]),
        "uncached, pass 0 (training): targets: [1, 2, 3, 4] against [1, 2, 3, 3]",
    ),
    **DROPPED,
    "logit": (set_logit(2, 9.0), f"{AT}logits: "),
    "logit nan": (set_logit(3, float("nan")), f"{AT}logits: "),
    "chosen": (
        lambda t: setattr(part(t).out[0], "chosen", 0),
        f"{AT}chosen: 'nice' (token 6) against 'Today' (token 0)",
    ),
    "the chosen token's text": (
        lambda t: setattr(t.sequences[0].tokens[6], "text", "warm"),
        f"{AT}chosen: 'nice' (token 6) against 'warm' (token 6)",
    ),
    "no output": (lambda t: part(t).out.clear(), f"{AT}outputs: 1 against 0"),
    "two outputs": (lambda t: part(t).out.append(Output(5, [], 6, "greedy")), f"{AT}outputs: 1 against 2"),
    "two sequences": (lambda t: decode(t).parts.append(part(t)), f"{AT}sequences: 1 against 2"),
    "a pass fewer": (lambda t: t.run("cached").events.pop(), "run cached: 5 passes against 4"),
    "recorded heads": (lambda t: t.recorded.pop(), "recorded heads: "),
}
WORK: dict[str, tuple[Change, str]] = {
    **{
        name: (
            lambda t, name=name: decode(t).counts.update({name: 99}),  # type: ignore[misc]
            f"{AT}counts {name}: {count} against 99",
        )
        for name, count in {"positions": 1, "kv_rows": 1, "rows_read": 5, "pairs": 6, "products": 6}.items()
    },
    **{
        f"shape of {name}": (
            lambda t, name=name: decode(t).shapes[1].update({name: [9]}),  # type: ignore[misc]
            f"{AT}layer 1, shape of {name}: {shape} against [9]",
        )
        for name, shape in {
            "q": [1, 4, 1, 2],
            "k": [1, 1, 6, 2],
            "v": [1, 1, 6, 1],
            "scores": [1, 4, 1, 6],
        }.items()
    },
    **DROPPED,
    "a layer fewer": (lambda t: decode(t).shapes.pop(), f"{AT}layers: 2 against 1"),
    "a pass fewer": (lambda t: t.run("cached").events.pop(), "run cached: 5 passes against 4"),
}


@pytest.mark.parametrize("name", RESULT)
def test_one_planted_difference_of_the_result_is_named(name: str) -> None:
    change, where = RESULT[name]
    a, b = long(), long()
    assert compare(a, b)
    change(b)
    assert not compare(a, b)
    assert str(compare(a, b)).startswith(where)
    assert not compare(b, a), "seen from the other side too"


@pytest.mark.parametrize("name", WORK)
def test_one_planted_difference_of_the_work_is_named(name: str) -> None:
    change, where = WORK[name]
    a, b = long(), long()
    assert compare(a, b, what="work")
    change(b)
    assert str(compare(a, b, what="work")) == where
    assert not compare(b, a, what="work")


def test_work_is_no_result_and_the_other_way_round() -> None:
    a, b = long(), long()
    decode(b).counts["pairs"] = 99
    assert compare(a, b)
    a, b = long(), long()
    set_logit(0, 0.0)(b)
    assert compare(a, b, what="work")


def test_the_first_of_two_differences_is_named() -> None:
    a, b = long(), long()
    RESULT["logit"][0](b)
    RESULT["context"][0](b)
    RESULT["weights of the prompt"][0](b)
    assert str(compare(a, b)).startswith(RESULT["weights of the prompt"][1])


def test_the_tolerance_is_relative_above_1() -> None:
    a = record_toy(["a"], [1e6], max_new=1)
    b = record_toy(["a"], [1e6 + 50], max_new=1)  # half of 1e-4 of it
    assert compare(a, b)
    assert not compare(a, b, tolerance=1e-5)
    for off, equal in ((0.00009, True), (0.00011, False)):  # up to 1 it is absolute
        a, b = (record_toy(["a"], [0.0], max_new=1) for _ in "ab")
        b.run("cached").passes[1].parts[0].contexts["0.1"] = [[off]]
        assert bool(compare(a, b)) is equal


def test_a_head_without_a_name_is_numbered() -> None:
    a, b = long(), long()
    a.model.head_names = None
    RESULT["context"][0](b)
    assert "layer 1, head 0, position 6" in str(compare(a, b))


def test_contexts_that_were_not_recorded_are_not_compared() -> None:
    """A large model's trace has none at all; its weights, logits and choices still are compared."""
    a, b = long(), long()
    for run in b.runs:
        for event in run.passes:
            event.parts[0].contexts.clear()
    assert compare(a, b)
    assert compare(b, a)
    RESULT["logit"][0](b)
    assert not compare(a, b)


def test_drops_are_no_difference_from_a_run_without_a_cache() -> None:
    trace = long()
    DROPPED["a drop at the end"][0](trace)
    assert compare(trace.only("cached"), trace.only("uncached"))
    assert compare(trace.only("uncached"), trace.only("cached"))


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="what is 'speed'; expected 'result' or 'work'"):
        compare(long(), long(), what="speed")
    says = "the traces have 2 and 1 runs; pick one of each with .only(name)"
    with pytest.raises(ValueError, match=re.escape(says)):
        compare(long(), long().only("cached"))
