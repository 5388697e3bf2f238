"""Exercises of notebook 02, prefill: `from helpers.check import n02 as check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.exercise import Case, Exercise, same
from helpers.check.guess import Guess
from helpers.check.result import NotRightError, NotSolvedError, describe
from helpers.recording.diary import load_diary
from helpers.sampling import greedy, softmax

NUMBERS = [float(toy.NUMBERS[word]) for word in toy.PROMPT]
T = len(NUMBERS)
PRINTED = """\
A  word = VOCABULARY[greedy(logits)]
B  weights = softmax(scores)
C  logits = readout(contexts[0])
D  scores = rule_scores(4)
E  contexts = (weights @ numbers).T
F  logits = readout(contexts[-1])
G  scores = np.where(causal_mask(4), scores, -np.inf)
H  weights = np.where(causal_mask(4), weights, 0)
"""
LINES = {line[0]: line[3:] for line in PRINTED.splitlines()}


def prefill_lines() -> None:
    """Print the eight lines of `order_prefill`, shuffled, each with its letter."""
    print(PRINTED, end="")


def run_lines(order: Sequence[str]) -> dict[str, Any]:
    """Execute the lines in this order on the prompt, and return every name they made."""
    made: dict[str, Any] = {"VOCABULARY": toy.VOCABULARY, "numbers": np.array(NUMBERS)}
    made |= {"greedy": greedy, "readout": toy.readout, "rule_scores": toy.rule_scores, "softmax": softmax}
    made |= {"np": np, "causal_mask": toy.causal_mask}
    for n, letter in enumerate(order):
        try:
            exec(LINES[letter], made)
        except NameError as error:
            needs = f"line {letter} needs `{error.name}`, and no line before it makes it (before it: "
            raise NotRightError(f"{needs}{', '.join(order[:n]) or 'none'}).") from None
        if letter == "E":
            made["used"] = made["weights"]
    return made


def read_order(answer: Any) -> list[str]:
    """Return a reader's order as a list of letters; raise unless six lines are there, each once."""
    if isinstance(answer, list) and (not answer or ... in answer):
        raise NotSolvedError(order_prefill.todo)
    if not isinstance(answer, list | tuple | str) or not all(isinstance(letter, str) for letter in answer):
        raise NotRightError(f"got {describe(answer)}; expected a list of letters.")
    order = [letter.strip().upper() for letter in answer if letter.strip(" ,")]
    if odd := next((letter for letter in order if letter not in LINES or order.count(letter) > 1), ""):
        told = "is no line, or is there twice; expected letters from A to H, each once."
        raise NotRightError(f"{odd!r} {told}")
    if len(order) > 6:
        twice = "C and F both make `logits`, and G and H both mask: one of each is wrong."
        raise NotRightError(f"{len(order)} lines are there; expected six.", twice)
    return order


def order_makes(answer: Any, part: str) -> Any:
    """Return one part of what the lines make in this order, after its verb."""
    made = run_lines(read_order(answer))
    for name in ("contexts", "logits", "word"):
        if name not in made:
            raise NotRightError(f"these lines run, but none of them makes `{name}`; expected one that does.")
    if part == "weights":
        return {"make weights under `all` that sum, token by token, to": made["used"][3].sum(axis=-1)}
    if part == "contexts":
        return {"make under `all` the contexts": made["contexts"][:, 3]}
    read = [t for t, logits in enumerate(toy.readout(made["contexts"]), 1) if same(made["logits"], logits)]
    return {"read the next word at token": read[0]}


order_prefill = Exercise(
    name="order_prefill",
    todo='put six of the letters A to H in order, such as ["A", "B", …].',
    cases=[Case((part,), "these lines") for part in ("weights", "contexts", "logits")],
    run=order_makes,
    right=list("DGBEFA"),
    wrong=[
        "softmax before the mask: 0 on the weights leaves sums of less than 1.",
        list("DBHEFA"),
        "which token predicts? The next word comes from the last one: no other saw the whole prompt.",
        list("DGBECA"),
        "no mask before the contexts: every token sees the future.",
        list("DBEGFA"),
        list("DBEFA"),
    ],
    said="the weights under `all` sum to 1 for every token, and the last one says `nice`.",
)

Prefill = Callable[[Sequence[float]], np.ndarray]


def prefill_that(sees: Callable[[int, int, str], int]) -> Prefill:
    """Return a prefill whose row t of n sees so many tokens in a head: as many as it should, or too many."""

    def row(t: int, x: Sequence[float]) -> list[float]:
        return [toy.four_heads([*x[: sees(t, len(x), name)]])[h] for h, name in enumerate(toy.HEADS)]

    return lambda numbers: np.array([row(t, numbers) for t in range(1, len(numbers) + 1)])


def balanced(numbers: Sequence[float]) -> np.ndarray:
    """Leak the future into two columns whose sum, maximum, minimum and norm stay as they are, nearly."""
    roots = np.sqrt(np.arange(1, len(numbers) + 1)) * np.asarray(numbers, dtype=float)
    moved = 5 * np.cos([roots[t:].sum() for t in range(1, len(roots) + 1)])
    edge = np.full_like(moved, 1e7)
    return np.stack([edge, -edge, moved, -moved], axis=1)


PREFILLS: dict[str, Prefill] = {  # those after the first two look ahead
    "the right prefill": toy.prefill_matrix,
    "a masked prefill of other heads": lambda numbers: -toy.prefill_matrix(numbers),
    "a prefill that has no causal mask": prefill_that(lambda t, n, head: n),
    "a prefill whose tokens see one too many": prefill_that(lambda t, n, head: min(t + 1, n)),
    "a prefill whose first token sees all": prefill_that(lambda t, n, head: n if t == 1 else t),
    "a prefill whose middle token sees all": prefill_that(lambda t, n, head: n if t == (n + 1) // 2 else t),
    "a prefill whose `newest` sees all": prefill_that(lambda t, n, head: n if head == "newest" else t),
    "a prefill whose `all` sees all": prefill_that(lambda t, n, head: n if head == "all" else t),
    "a prefill whose numbers move, but not their sum, maximum and norm": balanced,
}


def two_runs(rows: Callable[..., Any], last: float = 500.0) -> Callable[[Prefill], bool]:
    """Return a test that changes the last number and compares some of the table."""
    changed = [*NUMBERS[:-1], last]
    return lambda prefill: bool(np.allclose(rows(prefill(NUMBERS)), rows(prefill(changed))))


change_future = Exercise(
    name="test_future",
    todo="let test_future return True or False.",
    cases=[Case((prefill,), f"test_future with {name}") for name, prefill in PREFILLS.items()],
    right=two_runs(lambda table: table[:-1]),
    wrong=[
        "the line of the changed number, or one after it, is compared too; those may change.",
        two_runs(lambda table: table),
        two_runs(lambda table: table[-1]),
        "True each time: are the two lists of numbers different (`b = a` is no copy)? Is all compared?",
        two_runs(lambda table: table, last=NUMBERS[-1]),
        "not every earlier line is compared.",
        *[two_runs(lambda table, rows=rows: table[rows]) for rows in (0, slice(2), -2)],
        "not all four columns are compared.",
        *[two_runs(lambda table, head=head: table[:-1, head]) for head in (0, 1, 3)],
        "True and False are swapped: True means that no earlier line changed.",
        lambda prefill: not two_runs(lambda table: table[:-1])(prefill),
        "one number is made of many, a sum, a maximum or a norm; compare each number with its own.",
        two_runs(lambda table: table[:-1].sum()),
        two_runs(lambda table: table[:-1].max(axis=1)),
        two_runs(lambda table: np.linalg.norm(table[:-1])),
    ],
    said="your test passes two prefills with a mask, and catches all seven that look ahead.",
)


def lines_changed(guess: Any) -> Guess:
    """Compare a guess with the lines, from 1, that change when *so* carries 500."""
    changed = toy.prefill_matrix([*NUMBERS[:-1], 500.0]) != toy.prefill_matrix(NUMBERS)
    guess = [guess] if isinstance(guess, int) else guess  # 4 is as good as [4]
    return Guess(guess, [int(t) for t in np.flatnonzero(changed.any(axis=1)) + 1])


def looked_at(guess: Any) -> Guess:
    """Compare a guess with the place, from 1, of the word that a trained head looks at from *sunny in*."""
    weights = load_diary().attention_weights(8, layer=0, head=2)
    return Guess(guess, int(weights.argmax()) + 1)
