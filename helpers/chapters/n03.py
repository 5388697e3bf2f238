"""The exercise, the prediction and the figure of notebook 03, decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.check.result import NotRightError, describe_with_type
from helpers.cost.counts import reply_counts
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, printable, shorten, text_width
from helpers.sampling import greedy

MAX_CALLS = 50
SCRIPTED_WORDS = ["delicious", "warm", toy.EOS]
LogitsFunction = Callable[[Sequence[str]], np.ndarray]


def toy_logits(words: Sequence[str]) -> np.ndarray:
    """Return the toy's logits of the next word, (V,); `<eos>` and unknown words carry 0."""
    return toy.lm_head(toy.run_pass([toy.NUMBERS.get(word, 0) for word in words])[-1])


def logits_without_eos(words: Sequence[str]) -> np.ndarray:
    """Return the toy's logits of the next word, (V,), with -inf for `<eos>`."""
    return np.where([word == toy.EOS for word in toy.VOCABULARY], -np.inf, toy_logits(words))


def scripted_logits(words: Sequence[str]) -> np.ndarray:
    """Return logits, (V,), that choose `SCRIPTED_WORDS` in order, after a prompt of any two words."""
    return np.array([float(word == SCRIPTED_WORDS[min(len(words) - 2, 2)]) for word in toy.VOCABULARY])


def run_and_log_lengths(
    generate: Any, logits_of: LogitsFunction, prompt: list[str], max_new_tokens: int
) -> dict[str, Any]:
    """Run a `generate`, and record how many words it passes to `step` in each call.

    Args:
        generate: the function to check.
        logits_of: computes the logits that `step` returns.
        prompt: the words to begin with.
        max_new_tokens: the maximum number of new words.

    Returns:
        The words that `generate` returned, and the number of words in each call of `step`.

    Raises:
        NotRightError: `step` did not get a list of words, or was called more than `MAX_CALLS` times.
    """
    lengths: list[int] = []

    def step(words: Any) -> np.ndarray:
        if not isinstance(words, list | tuple) or not words or not all(isinstance(w, str) for w in words):
            got = describe_with_type(words) if words else "no words"
            raise NotRightError(f"generate hands step {got}; expected the list of all words so far.")
        lengths.append(len(words))
        if len(lengths) > MAX_CALLS:
            message = f"generate calls step over {MAX_CALLS} times; expected {max_new_tokens} times at most."
            raise NotRightError(message, "nothing stops the loop when max_new_tokens words are there.")
        return logits_of(list(words))

    words = generate(step, prompt, max_new_tokens)
    return {"returns": words, "calls step with this many words:": lengths}


def generate_with_extra_pass(
    step: LogitsFunction, prompt: list[str], max_new_tokens: int, runs_eos: bool = False
) -> list[str]:
    """Return the words of a reply, running each as soon as it is chosen, which makes one pass too many.

    Args:
        runs_eos: whether `<eos>` is run as well.
    """
    words = list(prompt)
    logits = step(words)
    while len(words) < len(prompt) + max_new_tokens and words[-1] != toy.EOS:
        words.append(toy.VOCABULARY[greedy(logits)])
        if words[-1] != toy.EOS or runs_eos:
            logits = step(words)
    return words[len(prompt) :]


def generate_until(
    step: LogitsFunction,
    prompt: list[str],
    max_new_tokens: int,
    stop_word: str = toy.EOS,
    newest_only: bool = False,
) -> list[str]:
    """Return the words of a reply, which ends with the word `stop_word` or after `max_new_tokens` words.

    Args:
        stop_word: the word that ends the reply.
        newest_only: whether `step` gets the newest word alone instead of all words.
    """
    words, fed = list(prompt), list(prompt)
    while len(words) < len(prompt) + max_new_tokens and words[-1] != stop_word:
        words.append(toy.VOCABULARY[greedy(step(fed))])
        fed = words[-1:] if newest_only else words
    return words[len(prompt) :]


generate = Exercise(
    name="generate",
    todo="let generate call step, choose the largest logit's word, append it, and stop in time.",
    cases=[
        Case((toy_logits, list(toy.PROMPT), 3), "generate on the toy, max_new_tokens=3,"),
        Case((logits_without_eos, list(toy.PROMPT), 3), "generate with `<eos>` banned, max_new_tokens=3,"),
        Case((toy_logits, list(toy.PROMPT), 1), "generate on the toy, max_new_tokens=1,"),
        Case(
            (scripted_logits, ["weather", "is"], 5),
            f"generate with a step that says {', '.join(SCRIPTED_WORDS)},",
        ),
    ],
    run_case=run_and_log_lengths,
    right_answer=toy.generate,
    wrong_answers=[
        "`<eos>` was run. It ends the reply: stop when it is chosen, before the next call.",
        partial(generate_until, stop_word=""),
        partial(generate_with_extra_pass, runs_eos=True),
        "a pass too many: the logits of the last one were never read.",
        generate_with_extra_pass,
        "a word too many: the first pass, over the prompt, emits one of the max_new_tokens words already.",
        lambda step, prompt, max_new_tokens: toy.generate(step, prompt, max_new_tokens + 1),
        "only the newest word is handed to step; without a cache it needs all words so far.",
        partial(generate_until, newest_only=True),
    ],
    success="with max_new_tokens=3, step ran on 4, 5 words on the toy, and on 4, 5, 6 with `<eos>` banned.",
)


def check_tokens_processed_guess(guess: Any) -> Guess:
    """Compare a guess with the tokens processed, without a cache, for 8 new words after a prompt of 4."""
    return Guess(
        guess, reply_counts(prompt_tokens=len(toy.PROMPT), reply_tokens=8, cached=False).tokens_processed
    )


def words_at_random_number(
    bars: Mapping[str, np.ndarray], vocabulary: Sequence[str], random_number: float
) -> Picture:
    """Draw a bar for each sampling setting, and the word in it that a random number selects.

    Args:
        bars: maps each setting to the probabilities of the words, (V,), which are the pieces of its bar.
        vocabulary: the V words.
        random_number: 0 <= random_number < 1; it selects the word whose piece of the bar contains it.
    """
    hits = {name: int(np.searchsorted(np.cumsum(p), random_number, side="right")) for name, p in bars.items()}

    def draw(sheet: Sheet) -> None:
        left, long, y = 18.0, sheet.width - 36.0, 18.0
        at = left + long * random_number
        sheet.note(at - 10, y, f"{random_number:.3f} hits", at="right", bold=True, colour="generated")
        sheet.line((at, y + 40), (at, y + 42 + 70 * (len(bars) - 1)), colour="generated", width=2)
        for name, p in bars.items():
            hit, y = hits[name], y + 34
            label = f"{name}: {np.count_nonzero(p)} words"
            sheet.note(left, y, label, colour="ink")
            word = shorten(vocabulary[hit], at - left - text_width(label, SMALL) - 18, bold=True)
            sheet.text(at - 10, y, word, at="right", bold=True, colour="generated")
            sheet.box(left, y + 14, long, 28, fill="faint", radius=0)
            for n in np.flatnonzero((p >= 0.01) | (np.arange(len(p)) == hit)).tolist():
                x, wide = left + long * p[:n].sum(), max(2.0, long * p[n] - 1)
                sheet.box(x, y + 14, wide, 28, fill="generated fill" if n == hit else "query fill", radius=0)
                if text_width(vocabulary[n], SMALL) < wide - 4:
                    sheet.note(x + 4, y + 28, vocabulary[n], colour="ink")
            sheet.arrow(at, y + 6, at, y + 16, "generated", width=2)
            y += 36
        sheet.note(left, y + 24, "0")
        sheet.note(left + long / 2, y + 24, "gray: words under 1 percent", at="center")
        sheet.note(left + long, y + 24, "1", at="right")

    each = [
        f"{name}: {printable(vocabulary[hit])} with {p[hit]:.1%}, one of {np.count_nonzero(p)} words; "
        f"those under 1 percent take {p[p < 0.01].sum():.0%} together"
        for (name, p), hit in zip(bars.items(), hits.values(), strict=True)
    ]
    return Picture(draw, f"What the random number {random_number:.3f} hits. {'. '.join(each)}.")
