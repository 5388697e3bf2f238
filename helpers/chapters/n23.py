"""Notebook 23, a state instead of rows: timed decode steps, names copied over a gap, and the exercise."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from helpers import corpus
from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.model.cache import StateCache, StaticCache
from helpers.model.generate import decode_step, prefill
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer
from helpers.timing.steps import fastest_ms
from helpers.tokenizer import Tokenizer


def step_at(model: Transformer, length: int) -> Any:
    """Return a task that runs one decode step after a number of tokens, and can be called repeatedly.

    The tokens are not processed: rows and states of zeros take as long to read as any others.

    Args:
        model: the model, of which a copy with a longer maximum sequence is used.
        length: number of tokens in the cache before the step.
    """
    config = replace(model.config, max_seq_len=length + 2)
    longer = type(model)(config).requires_grad_(False)
    longer.load_state_dict(model.state_dict())
    cache = (StateCache if isinstance(model, StateTransformer) else StaticCache)(config)
    cache.advance(length)
    before = cache.snapshot()

    def step() -> None:
        cache.restore(before)
        decode_step(longer, [[1]], cache)

    return step


def step_times(models: Mapping[str, Transformer], lengths: Sequence[int]) -> dict[str, list[float]]:
    """Time a decode step of each model after each number of tokens.

    Args:
        models: the models by name.
        lengths: numbers of tokens in the cache before the step.

    Returns:
        From the name of each model to the milliseconds of a step for each of `lengths`.
    """
    tasks = {(name, n): step_at(model, n) for name, model in models.items() for n in lengths}
    ms = fastest_ms(tasks, turns=15)
    return {name: [ms[name, n] for n in lengths] for name in models}


def signed(model: Transformer, tokenizer: Tokenizer, gap: int, nearer: int = 0) -> int:
    """Return how many of 20 diaries a model signs with the right name after a gap.

    Args:
        model: the model.
        tokenizer: the model's tokenizer.
        gap: minimum number of words, in whole sentences without name or city, before the signature.
        nearer: number to add to the positions of the words before the gap, as if they were closer to the
            signature.
    """
    right = 0
    for rng in map(random.Random, range(20)):
        name, city = rng.choice(corpus.pairs(held_out=True))
        ids = tokenizer.encode(" ".join([*corpus.body(rng, name, city, gap), "Signed by"]))
        places, cache = torch.arange(len(ids)), StateCache(model.config)
        places[:-gap] += nearer
        cache.positions = lambda T, places=places: places  # type: ignore[method-assign, misc]
        right += tokenizer.words([int(prefill(model, ids, cache).argmax())])[0] == name
    return right


def newest_before(snapshots: list[int], to: int) -> int:
    """Return the position of the newest snapshot that is not after position `to`, or 0 if there is none."""
    return max([0, *(at for at in snapshots if at <= to)])


def runs(snapshots: list[int], length: int, to: int, states: bool, begin: Any = newest_before) -> int:
    """Return how many tokens must be processed again to truncate a text.

    Args:
        snapshots: numbers of tokens after which a snapshot was taken, in any order.
        length: number of tokens in the text.
        to: number of tokens to keep.
        states: whether any layer has a state, which cannot be truncated as rows can.
        begin: function that chooses where to restart, given `snapshots` and `to`.
    """
    return abs(to - begin(snapshots, to)) if states and to != length else 0


recomputed = Exercise(
    name="recomputed",
    todo="let recomputed return a number of tokens.",
    cases=[
        *[([100, 200, 300], 340, 250, True), ([100, 200, 300], 340, 200, True), ([], 340, 250, True)],
        *[([300], 340, 250, True), ([100, 200], 340, 340, True), ([200, 100], 340, 299, True)],
        Case(([100, 200, 300], 340, 250, False), failure_hint="rows can be cut off anywhere."),
    ],
    right_answer=runs,
    wrong_answers=[
        "a snapshot behind the place has taken in what should be gone: look before it only.",
        partial(runs, begin=lambda snapshots, to: min([0, *snapshots], key=lambda at: (abs(at - to), -at))),
        partial(runs, begin=lambda snapshots, to: min(to, max([0, *snapshots]))),
        "without a snapshot before it the text is recomputed from its first token.",
        partial(runs, begin=lambda snapshots, to: newest_before(snapshots, to) or to),
        "the nearest snapshot before the place is the newest one there, not the oldest.",
        partial(runs, begin=lambda snapshots, to: next((at for at in sorted(snapshots) if at <= to), 0)),
        "rows can be cut off: where no layer keeps a state, nothing is recomputed.",
        lambda snapshots, length, to, states: runs(snapshots, length, to, True),
    ],
    success="50 from a snapshot at 200 to the place 250, all 250 without one, and none where rows are kept.",
)


def reading(guess: Any, read: Any) -> Guess:
    """Compare a guess of what a query reads from a state with the actual value, `read`."""
    return Guess(guess, read, "The two values that came in with this key were added, and stay added.")


def facts_found(guess: Any, share: float) -> Guess:
    """Compare a guess of how many of 128 facts are found with the nearest of 0, 32, 64, 96 and 128.

    Args:
        guess: the reader's guess.
        share: the measured share of facts that are found, 0 to 1.
    """
    sentence = f"{128 * share:.0f} of 128, on average."
    options = range(0, 129, 32)
    return Guess(guess, min(options, key=lambda n: abs(n - 128 * share)), sentence, options=options)
