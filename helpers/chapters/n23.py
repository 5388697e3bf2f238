"""The experiments, the exercise and the predictions of notebook 23, a state instead of KV entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.model.cache import StateCache, StaticCache
from helpers.model.generate import decode_step
from helpers.model.state import StateTransformer
from helpers.model.transformer import Transformer
from helpers.timing.steps import fastest_ms


def make_decode_step_task(model: Transformer, n_cached: int) -> Any:
    """Return a task that runs one decode step after a number of cached tokens.

    The cached tokens are not processed first, because KV entries and states that are 0 take as long to read
    as any others. After each call, the task can be called again.

    Args:
        model: the model. The step uses a copy of it with a higher maximum number of tokens.
        n_cached: number of tokens in the cache before the step.
    """
    config = replace(model.config, max_seq_len=n_cached + 2)
    longer = type(model)(config).requires_grad_(False)
    longer.load_state_dict(model.state_dict())
    cache = (StateCache if isinstance(model, StateTransformer) else StaticCache)(config)
    cache.advance(n_cached)
    before = cache.snapshot()

    def step() -> None:
        cache.restore(before)
        decode_step(longer, [[1]], cache)

    return step


def measure_step_ms(models: Mapping[str, Transformer], lengths: Sequence[int]) -> dict[str, list[float]]:
    """Time a decode step of each model for several numbers of cached tokens.

    Args:
        models: the models by name.
        lengths: the numbers of cached tokens before the step.

    Returns:
        For each model, by name, the milliseconds that a step takes for each item of `lengths`.
    """
    tasks = {(name, n): make_decode_step_task(model, n) for name, model in models.items() for n in lengths}
    ms = fastest_ms(tasks, turns=15)
    return {name: [ms[name, n] for n in lengths] for name in models}


def newest_snapshot_before(snapshots: list[int], position: int) -> int:
    """Return the position of the newest snapshot that is not after `position`, or 0 if there is none."""
    return max([0, *(at for at in snapshots if at <= position)])


def count_recomputed_tokens(
    snapshots: list[int],
    length: int,
    n_kept: int,
    has_state: bool,
    choose_snapshot: Any = newest_snapshot_before,
) -> int:
    """Return how many tokens must be processed again after a text is truncated.

    Args:
        snapshots: the positions of the snapshots: how many tokens were processed before each. They may be in
            any order.
        length: number of tokens in the text.
        n_kept: number of tokens that remain after the truncation.
        has_state: whether any layer has a state. A state cannot be truncated, in contrast to KV entries.
        choose_snapshot: function that takes `snapshots` and `n_kept`, and returns the position from which
            tokens are processed again.
    """
    return abs(n_kept - choose_snapshot(snapshots, n_kept)) if has_state and n_kept != length else 0


recomputed = Exercise(
    name="recomputed",
    todo="let recomputed return a number of tokens.",
    cases=[
        *[([100, 200, 300], 340, 250, True), ([100, 200, 300], 340, 200, True), ([], 340, 250, True)],
        *[([300], 340, 250, True), ([100, 200], 340, 340, True), ([200, 100], 340, 299, True)],
        Case(([100, 200, 300], 340, 250, False), failure_hint="KV entries can be dropped anywhere."),
    ],
    right_answer=count_recomputed_tokens,
    wrong_answers=[
        "a snapshot after the place has taken in what should be gone: look only before it.",
        partial(
            count_recomputed_tokens,
            choose_snapshot=lambda snapshots, to: min([0, *snapshots], key=lambda at: (abs(at - to), -at)),
        ),
        partial(count_recomputed_tokens, choose_snapshot=lambda snapshots, to: min(to, max([0, *snapshots]))),
        "without a snapshot before it the text is recomputed from its first token.",
        partial(
            count_recomputed_tokens,
            choose_snapshot=lambda snapshots, to: newest_snapshot_before(snapshots, to) or to,
        ),
        "the nearest snapshot before the place is the newest one there, not the oldest.",
        partial(
            count_recomputed_tokens,
            choose_snapshot=lambda snapshots, to: next((at for at in sorted(snapshots) if at <= to), 0),
        ),
        "KV entries can be dropped: if no layer keeps a state, nothing is recomputed.",
        lambda snapshots, length, to, states: count_recomputed_tokens(snapshots, length, to, True),
    ],
    success="50 from a snapshot at 200 to the place 250, all 250 without one, none with KV entries.",
)


def check_state_read_guess(guess: Any, actual: Any) -> Guess:
    """Compare a guess of what a query reads from a state with what it reads in a run, `actual`."""
    return Guess(guess, actual, "The two values that came in with this key were added, and stay added.")


def check_facts_found_guess(guess: Any, share_found: float) -> Guess:
    """Compare a guess of how many of 128 facts are found with the option nearest to the measured number.

    The options are 0, 32, 64, 96 and 128.

    Args:
        guess: the reader's guess.
        share_found: the measured share of facts that are found, from 0 to 1.
    """
    sentence = f"{128 * share_found:.0f} of 128, on average."
    options = range(0, 129, 32)
    return Guess(guess, min(options, key=lambda n: abs(n - 128 * share_found)), sentence, options=options)
