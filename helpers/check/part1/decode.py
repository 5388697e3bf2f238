"""Checkers of notebook 03, decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.cases import Case, call, is_number, with_reason
from helpers.check.part1.shared import T
from helpers.check.result import NotRightError, NotSolvedError, describe, exercise, show

GENERATE_TODO = "let generate call step, choose the largest logit's word, append it, and stop in time."
GENERATE_ERRORS = {
    "logits have shape ()": "step gives one row already, the last position's: hand all of it to greedy.",
    "hands step no words": "the words so far are the prompt and the new ones: begin with list(prompt).",
}
MOST_CALLS = 50


@dataclass
class LoggedStep:
    """A step that counts the words of each call, and notes if `<eos>` is among them or the prompt not first.

    Args:
        name: which run this is.
        logits: from words to logits, (V,).
        prompt: the words it starts from.
        max_new: how many new words are asked for.
    """

    name: str
    logits: Callable[[list[str]], np.ndarray]
    prompt: list[str]
    max_new: int
    lengths: list[int] = field(default_factory=list)
    ran_eos: bool = False
    moved: bool = False

    @property
    def label(self) -> str:
        """The run in words."""
        return f"generate {self.name}, max_new={self.max_new},"

    def __call__(self, words: Any) -> np.ndarray:
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise NotRightError(
                f"{self.label} hands step {describe(words)}; expected the list of all words so far."
            )
        if not words:
            raise NotRightError(f"{self.label} hands step no words; expected the prompt first.")
        self.lengths.append(len(words))
        self.ran_eos |= toy.EOS in words
        self.moved |= list(words[: len(self.prompt)]) != self.prompt
        if len(self.lengths) > MOST_CALLS:
            raise NotRightError(
                f"{self.label} calls step over {MOST_CALLS} times; expected {self.max_new} times at most.",
                "nothing stops the loop when max_new words are there.",
            )
        return self.logits(list(words))


def _toy_logits(words: list[str]) -> np.ndarray:
    """Run the toy; `<eos>` and words it does not know carry 0."""
    return toy.readout(toy.prefill_matrix([toy.NUMBERS.get(word, 0) for word in words])[-1])


def _banned_logits(words: list[str]) -> np.ndarray:
    return np.where(np.array(toy.VOCABULARY) == toy.EOS, -np.inf, _toy_logits(words))


def _scripted_logits(words: list[str]) -> np.ndarray:
    """Say delicious, warm, `<eos>` after two words, whatever they are."""
    script = ["delicious", "warm", toy.EOS]
    return np.array([1.0 if word == script[min(len(words) - 2, 2)] else -1.0 for word in toy.VOCABULARY])


def _steps() -> list[LoggedStep]:
    prompt = list(toy.PROMPT)
    return [
        LoggedStep("on the toy", _toy_logits, prompt, 3),
        LoggedStep("with `<eos>` banned", _banned_logits, prompt, 3),
        LoggedStep("on the toy", _toy_logits, prompt, 1),
        LoggedStep("with a step that says delicious, warm, <eos>", _scripted_logits, ["weather", "is"], 5),
        LoggedStep("with `<eos>` banned", _banned_logits, ["so", "is"], 8),
    ]


def _generate_reason(step: LoggedStep, words: list[Any], lengths: list[int], expected: list[str]) -> str:
    """Name the mistake that the words and the lengths of the calls show."""
    if not step.lengths and not words:
        return "max_new counts the new words; those of the prompt do not count."
    if step.lengths[:1] == [T] and len(step.prompt) != T:
        return "the prompt comes in as the argument `prompt`; another was run."
    if words[:1] == [expected[0][0]]:
        return "a word was put behind the others letter by letter: use append."
    if step.ran_eos:
        return "`<eos>` was run. It ends the reply: stop when it is chosen, before the next call."
    if words == expected and step.lengths == [*lengths, len(step.prompt) + len(expected)]:
        return "a pass too many: the logits of the last one were never read."
    if words == expected and len(step.lengths) > len(expected):
        return "a pass too many: the logits of one were never read."
    if words[:-1] == expected and len(step.lengths) == len(words):
        return "a word too many: the first pass, over the prompt, emits one of the max_new words already."
    if len(words) > step.max_new and words[: step.max_new] == expected:
        return "max_new is an argument: stop when there are that many new words."
    if step.moved and len(step.lengths) > 1 and step.lengths[:2] == [len(step.prompt), len(step.prompt) + 1]:
        return "a new word goes behind all others; here the prompt does not come first any more."
    if 1 in step.lengths and len(step.prompt) > 1:
        return "only the newest word is handed to step; without a cache it needs all words so far."
    if len(step.lengths) > 1 and len(set(step.lengths)) == 1:
        return "the chosen word is not put behind the others before the next call."
    if len(step.lengths) == 1 < len(words):
        return "step is called once; each new word takes a call of its own."
    if len(step.lengths) == 1 < step.max_new - 1 and words == expected[:1]:
        return "it stops after one word: the loop ends too early (max_new counts the new words alone)."
    if words == [*step.prompt, *expected]:
        return "the prompt is returned too; only the new words are asked for."
    if words and step.lengths == lengths and words == [*step.prompt, *expected][-len(words) :]:
        return "the prompt is cut off by another length than its own: words[len(prompt) :]."
    if step.lengths == lengths and expected[-1] == toy.EOS and words == expected[:-1]:
        return "`<eos>` is left out of the answer; it was chosen, so it counts as emitted."
    if words == expected[:-1] and step.lengths == lengths[:-1]:
        return "a pass too few: the first pass, over the prompt, emits the first word and no more than that."
    if words == [toy.VOCABULARY.index(word) for word in expected]:
        return "these are places in the vocabulary: look the words up in VOCABULARY."
    return ""


def _read_words(value: Any, step: LoggedStep) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise NotRightError(f"{step.label} returns {describe(value)}; expected a list of words.")
    return list(value)


def _check_generate(answer: Any, step: LoggedStep) -> str:
    """Run the reader's loop on one step, and return the lengths of its calls, or raise."""
    right = LoggedStep(step.name, step.logits, step.prompt, step.max_new)
    expected = toy.generate(right, step.prompt, step.max_new)
    case = Case(step.label, (step, list(step.prompt), step.max_new))
    try:
        words = _read_words(call(answer, case, GENERATE_TODO), step)
    except NotRightError as stop:
        raise with_reason(stop, GENERATE_ERRORS) from None
    if step.lengths != right.lengths and not (step.lengths and words and words[0] != expected[0]):
        ran = f"runs step on {show(step.lengths)} words" if step.lengths else "never calls step"
        wanted = show(right.lengths) if step.lengths else f"calls on {show(right.lengths)} words"
        message = f"{step.label} {ran}; expected {wanted}."
        raise NotRightError(message, _generate_reason(step, words, right.lengths, expected))
    if words != expected:
        returned = ", ".join(str(word) for word in words) or "no words"
        message = f"{step.label} returns {returned}; expected {show(expected)}."
        raise NotRightError(message, _generate_reason(step, words, right.lengths, expected))
    return show(step.lengths)


@exercise
def generate(answer: Any) -> str:
    """03: `generate(step, prompt, max_new)` returns the new words; `step(words)` takes all words so far.

    `step` returns the next word's logits in the order of `toy.VOCABULARY`, and the lengths of its calls are
    compared. The new words are at most `max_new`; `<eos>` is the last one if it comes, and is never run.
    """
    ran = [_check_generate(answer, step) for step in _steps()]
    return f"with max_new=3, step ran on {ran[0]} words on the toy, and on {ran[1]} with `<eos>` banned."


N_NEW = 8
PASSES = range(T, T + N_NEW)  # how many tokens each pass runs without a cache


def _pairs(passes: Sequence[int]) -> int:
    return sum(t * (t + 1) // 2 for t in passes)


TOO_MANY = f"prefill emits a word too: {N_NEW} words take {N_NEW} passes, not {N_NEW + 1}."
TOO_FEW = f"{N_NEW} words take {N_NEW} passes, the prefill among them."
NO_PREFILL = "the prefill is left out; it is one of the passes."
SHIFTED = f"the passes run {T} to {PASSES[-1]} tokens: the prefill is one, and the last word is never run."
FROM_1 = f"the prompt goes in at once: the first pass runs {T} tokens."
NEW_ALONE = "the prompt is left out; each pass runs it again too."
FULL_LENGTH = "every pass was counted at the full length; they grow by one token each."
PROMPT_ALONE = "every pass was counted with the prompt alone; the new words are run again too."
CACHED = "that is the cost with a cache; without one, each pass runs all tokens again."
COUNTS: dict[str, tuple[int, str, dict[int, str]]] = {
    "positions": (
        sum(PASSES),
        f"{T} + {T + 1} + … + {PASSES[-1]}",
        {
            sum(PASSES) + T + N_NEW: TOO_MANY,
            sum(PASSES[:-1]): TOO_FEW,
            sum(PASSES[1:]): NO_PREFILL,
            PASSES[-1]: CACHED,
            PASSES[-1] + 1: CACHED,
            _pairs(PASSES): "those are the pairs.",
            N_NEW: "that is the number of passes; count the tokens that each of them runs.",
            T * N_NEW: PROMPT_ALONE,
            PASSES[-1] * N_NEW: FULL_LENGTH,
            (PASSES[-1] + 1) * N_NEW: FULL_LENGTH,
            sum(PASSES) + N_NEW: SHIFTED,
            sum(range(PASSES[-1] + 1)): FROM_1,
            sum(range(N_NEW + 1)): NEW_ALONE,
            sum(PASSES) * len(toy.HEADS): "a position is run once, for all heads.",
        },
    ),
    "pairs": (
        _pairs(PASSES),
        f"(1 + … + {T}) + (1 + … + {T + 1}) + … + (1 + … + {PASSES[-1]})",
        {
            _pairs(range(T, T + N_NEW + 1)): TOO_MANY,
            _pairs(PASSES[:-1]): TOO_FEW,
            _pairs(PASSES[1:]): NO_PREFILL,
            _pairs([PASSES[-1]]): CACHED,
            _pairs([PASSES[-1] + 1]): CACHED,
            sum(t * t for t in PASSES): "masked products were counted; a query sees itself and before only.",
            T * T + sum(PASSES[1:]): CACHED,
            sum(t * (t - 1) // 2 for t in PASSES): "a query sees itself too: 1 + 2 + … + t pairs.",
            sum(t * (t + 1) for t in PASSES): "twice too many: 1 + 2 + … + t is t (t + 1) / 2.",
            _pairs([T]) * N_NEW: PROMPT_ALONE,
            _pairs([PASSES[-1]]) * N_NEW: FULL_LENGTH,
            _pairs([PASSES[-1] + 1]) * N_NEW: FULL_LENGTH,
            _pairs(range(T + 1, T + N_NEW + 1)): SHIFTED,
            _pairs(range(PASSES[-1] + 1)): FROM_1,
            _pairs(range(N_NEW + 1)): NEW_ALONE,
            _pairs(PASSES) * len(toy.HEADS): "those are the pairs of all four heads; count one.",
            sum(PASSES): "those are the positions; each of them sees several keys.",
        },
    ),
}


def _check_count(name: str, value: Any) -> tuple[str, str]:
    """Return (what is wrong with a count, the likely reason); both empty if it is right."""
    right, expected, reasons = COUNTS[name]
    if not is_number(value):
        return f"`{name}` is {describe(value)}; expected a number.", ""
    if value == right:
        return "", ""
    return f"`{name}` is {show(value)}; expected {expected}.", reasons.get(value, "")


def _join_reasons(reasons: dict[str, str]) -> str:
    """Write the reasons one after another, once if they are the same, and say whose each is if not."""
    if len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return " ".join(f"{name}: {reason}" for name, reason in reasons.items() if reason)


@exercise
def count_work(positions: Any, pairs: Any) -> str:
    """03: positions run, and pairs of one head, for a prompt of 4 and 8 new tokens without a cache."""
    answers = {"positions": positions, "pairs": pairs}
    filled = {name: value for name, value in answers.items() if value is not None and value is not ...}
    found = {name: _check_count(name, value) for name, value in filled.items()}
    right = [f"`{name}`, {show(filled[name])}, is right" for name, (wrong, _) in found.items() if not wrong]
    wrong = {name: text for name, (text, _) in found.items() if text}
    if wrong:
        message = " ".join([*wrong.values(), *(f"{text}." for text in right)])
        raise NotRightError(message, _join_reasons({name: found[name][1] for name in wrong}))
    missing = " and ".join(f"`{name}`" for name in answers if name not in filled)
    if missing:
        raise NotSolvedError("; ".join([*right, f"write a number for {missing}."]))
    return f"{show(positions)} positions and {show(pairs)} pairs in {N_NEW} passes."
