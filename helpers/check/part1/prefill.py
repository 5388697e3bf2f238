"""Checkers of notebook 02, prefill."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.cases import Case, call
from helpers.check.part1.shared import CARRIED, T, mean
from helpers.check.result import NotRightError, NotSolvedError, describe, exercise, same, show
from helpers.sampling import greedy, softmax

LINES = {
    "A": "word = VOCABULARY[greedy(logits)]",
    "B": "weights = softmax(scores)",
    "C": "logits = readout(contexts[0])",
    "D": "scores = rule_scores(4)",
    "E": "contexts = (weights @ numbers).T",
    "F": "logits = readout(contexts[-1])",
    "G": "hide_future()",
}
NOTES = {
    "D": "four heads, a row for each query",
    "E": "a row for each token, a column for each head",
    "G": "-inf on scores; if there are weights already, times 0 on weights",
}
READOUTS = ("C", "F")


def prefill_lines() -> None:
    """Print the seven lines of `order_prefill`, shuffled, each with its letter."""
    for letter, line in LINES.items():
        print(f"{letter}  {line:<35}{'# ' + NOTES[letter] if letter in NOTES else ''}".rstrip())


def _hide_future(made: dict[str, Any]) -> None:
    """Mask what there is: the weights if they have been made, the scores otherwise."""
    mask = toy.causal_mask(T)
    if "weights" in made:
        made["weights"] = made["weights"] * mask
    elif "scores" in made:
        made["scores"] = np.where(mask, made["scores"], -np.inf)
    else:
        raise NameError("name 'scores' is not defined", name="scores")


def _run_lines(order: list[str]) -> dict[str, Any]:
    """Execute the lines in this order on the prompt, and return every name they made."""
    made: dict[str, Any] = {
        "VOCABULARY": toy.VOCABULARY,
        "greedy": greedy,
        "numbers": np.array(CARRIED, dtype=float),
        "readout": toy.readout,
        "rule_scores": toy.rule_scores,
        "softmax": softmax,
    }
    made["hide_future"] = partial(_hide_future, made)
    for letter in order:
        try:
            exec(LINES[letter], made)
        except NameError as error:
            before = ", ".join(order[: order.index(letter)]) or "none"
            raise NotRightError(
                f"line {letter} needs `{error.name}`, and no line before it makes it (before it: {before})."
            ) from None
    return made


def _read_order(answer: Any) -> list[str]:
    if answer is None or answer is ... or (isinstance(answer, list) and (not answer or ... in answer)):
        raise NotSolvedError('put six of the letters A to G in order, such as ["A", "B", …].')
    if not isinstance(answer, list | tuple | str) or not all(isinstance(letter, str) for letter in answer):
        raise NotRightError(f"got {describe(answer)}; expected a list of letters.")
    order = [letter.strip().upper() for letter in answer if letter.strip(" ,")]
    for letter in order:
        if letter not in LINES:
            raise NotRightError(f"there is no line {letter!r}; expected letters from A to G.")
        if order.count(letter) > 1:
            raise NotRightError(f"line {letter} is there {order.count(letter)} times; expected once.")
    if set(READOUTS) <= set(order):
        message = f"lines {' and '.join(READOUTS)} both make `logits`; expected one of them."
        raise NotRightError(message, "one of the two is the false line: which row predicts the next word?")
    return order


@exercise
def order_prefill(answer: Any) -> str:
    """02: six of the seven lines of `prefill_lines()`, in an order that runs the prompt; they are run."""
    order = _read_order(answer)
    made = _run_lines(order)
    for name in ("contexts", "logits", "word"):
        if name not in made:
            raise NotRightError(f"these lines run, but none of them makes `{name}`; expected one that does.")
    _check_weights(made, order)
    right = toy.readout(toy.prefill_matrix(CARRIED)[-1])
    if not same(made["logits"], right):
        raise NotRightError(
            f"the word is {made['word']}, read from row 1; expected the word behind `so`.",
            "which row predicts? The next word comes from the last row: no other saw the whole prompt.",
        )
    top = show(max(made["logits"]))
    return f"every row of weights sums to 1 or to 0, and row {T} says `{made['word']}` with logit {top}."


def _check_weights(made: dict[str, Any], order: list[str]) -> None:
    """Raise unless the contexts are right: no mask, one after the contexts, or one after the softmax."""
    contexts, right = made["contexts"][:, 3], toy.prefill_matrix(CARRIED)[:, 3]
    if same(contexts, right):
        return
    if same(contexts, mean(CARRIED) * np.ones(T)):
        late = "the mask came after the contexts" if "G" in order else "no mask"
        message = f"the contexts under `all` are {show(contexts)}; expected {show(right)}."
        raise NotRightError(message, f"{late}: every row sees the future.")
    sums = made["weights"][toy.HEADS.index("all")].sum(axis=-1)
    raise NotRightError(
        f"the rows of weights under `all` sum to {show(sums)}; expected 1 each.",
        "softmax before the mask. -inf on the scores leaves rows that sum to 1; 0 on the weights does not.",
    )


FUTURE_TODO = "let test_future return True or False."


class LoggedPrefill:
    """A prefill that may look too far ahead, and keeps the prompts it was run on.

    Args:
        sees: how many tokens row t of T sees, from 1, under head h; the right one sees t.
    """

    def __init__(self, sees: Callable[[int, int, str], int]) -> None:
        self.sees = sees
        self.prompts: list[list[float]] = []

    def __call__(self, numbers: Any) -> np.ndarray:
        carried = np.array(numbers, dtype=float)
        if carried.ndim != 1 or carried.size == 0:
            raise ValueError(f"prefill got an array of shape {carried.shape}; expected a list of numbers")
        self.prompts.append(list(carried))
        return np.array([self._row(t, list(carried)) for t in range(1, len(carried) + 1)])

    def _row(self, t: int, carried: list[float]) -> list[float]:
        seen = [carried[: self.sees(t, len(carried), head)] for head in toy.HEADS]
        return [toy.four_heads(visible)[h] for h, visible in enumerate(seen)]

    def changed(self) -> list[set[int]]:
        """Return for each prompt after the first at which positions it differs from that one."""
        pairs = [(self.prompts[0], prompt) for prompt in self.prompts[1:]]
        return [{n for n, (x, y) in enumerate(zip(a, b, strict=False), 1) if x != y} for a, b in pairs]


AVERAGE = "whose `all` sees all"
ROWS, COLUMNS = "not every earlier row is compared.", "not all four columns are compared."
LEAKS: dict[str, tuple[Callable[[int, int, str], int], str]] = {  # how far they see; what misses them
    "that has no causal mask": (lambda t, n, head: n, ""),
    "whose rows see one token too many": (lambda t, n, head: min(t + 1, n), ROWS),
    "whose row 1 sees all": (lambda t, n, head: n if t == 1 else t, ROWS),
    "whose middle row sees all": (lambda t, n, head: n if t == (n + 1) // 2 else t, ROWS),
    "whose `newest` sees all": (lambda t, n, head: n if head == "newest" else t, COLUMNS),
    AVERAGE: (lambda t, n, head: n if head == "all" else t, COLUMNS),
}


def _verdict(function: Any, prefill: Callable[[Any], np.ndarray], name: str) -> bool:
    """Run the reader's test on a prefill and return the True or False it gives."""
    label = f"test_future with {name}"
    value = call(function, Case(label, (prefill,)), FUTURE_TODO)
    if not isinstance(value, bool | np.bool_):
        raise NotRightError(f"{label} gives {describe(value)}; expected True or False.")
    return bool(value)


def _still(numbers: Any) -> np.ndarray:
    """Run a prefill in which nothing ever changes."""
    return np.zeros((len(numbers), len(toy.HEADS)))


def _noise(still: int | None = None) -> Callable[[Any], np.ndarray]:
    """Return a prefill in which every number of every call is another one, but for one column."""
    rng = np.random.default_rng(0)
    moves = np.arange(len(toy.HEADS)) != still
    return lambda numbers: rng.normal(size=(len(numbers), len(toy.HEADS))) * moves


def _check_passes_right(answer: Any, right: LoggedPrefill) -> None:
    if _verdict(answer, right, "the right prefill"):
        return
    if all(_verdict(answer, LoggedPrefill(sees), f"a prefill {name}") for name, (sees, _) in LEAKS.items()):
        reason = "True and False are swapped: True means that no earlier row changed."
    elif not _verdict(answer, _still, "a prefill of zeros"):
        reason = "it returns False even for a table in which nothing ever changes."
    else:
        reason = "the row of the changed number, or one after it, is compared too; those rows may change."
    raise NotRightError("with the right prefill it returns False; expected True.", reason)


def _check_compares_numbers(answer: Any) -> None:
    """Raise if the test knows the numbers of the toy by heart, or compares no more than sums."""
    if not _verdict(answer, lambda numbers: -toy.prefill_matrix(numbers), "a prefill of other heads"):
        message = "with a prefill of other heads, which has its mask, it returns False; expected True."
        reason = "the table is held against known numbers; hold two runs of prefill against each other."
        raise NotRightError(message, reason)
    rng = np.random.default_rng(0)
    balanced = np.array([[1, -1, 0, 0], [0, 0, 1, -1]])  # each row of a table then sums to 0
    if _verdict(answer, lambda numbers: rng.integers(1, 99, (len(numbers), 2)) @ balanced, "random numbers"):
        message = (
            "with a prefill whose numbers all change, but not their sum, it returns True; expected False."
        )
        raise NotRightError(message, "sums or averages are compared; compare each number with its own.")


def _missed_reason(answer: Any, right: LoggedPrefill, leak: str) -> str:
    """Say why a test let a leak through."""
    if len(right.prompts) < 2:
        calls = ("never called", "called once")[len(right.prompts)]
        return f"prefill is {calls}; it takes two runs to see a change."
    changed, n = right.changed(), len(right.prompts[0])
    same_length = all(len(prompt) == n for prompt in right.prompts)
    if same_length and right.prompts[::2] == right.prompts[1::2]:
        return "prefill gets the same numbers both times (`b = a` makes no copy); change the last one."
    if not _verdict(answer, _still, "a prefill of zeros"):
        return "it asks whether something changes; ask whether every earlier row stays as it was."
    if _verdict(answer, _noise(), "a prefill of random numbers"):
        return "it returns True whatever prefill gives: nothing is compared, or only with itself."
    if all(_verdict(answer, _noise(h), "a prefill of random numbers") for h in range(len(toy.HEADS))):
        return "one number that stays is enough for it; every one has to stay: np.all, not np.any."
    if leak == AVERAGE and same_length and len({*map(sum, right.prompts)}) == 1:
        return "numbers that swap places keep their average, so `all` cannot show it: change the last number."
    if any(changed) and not any(n in places for places in changed):
        return f"number {n}, the last, is never changed; change that one, then all other rows are earlier."
    if any(changed) and {n} not in changed:
        return f"earlier numbers change with number {n}; change that alone, then all other rows are earlier."
    return LEAKS[leak][1]


@exercise
def change_future(answer: Any) -> str:
    """02: `test_future(prefill)` returns True if changing a later number changes no earlier row, else False.

    It is run on the right prefill, which `prefill(numbers)` gives as a table (T, 4), and on six that leak.
    """
    right = LoggedPrefill(lambda t, n, head: t)
    _check_passes_right(answer, right)
    for name, (sees, _) in LEAKS.items():
        if _verdict(answer, LoggedPrefill(sees), f"a prefill {name}"):
            message = f"with a prefill {name} it returns True; expected False."
            raise NotRightError(message, _missed_reason(answer, right, name))
    _check_compares_numbers(answer)
    return f"your test passes the right prefill and catches all {len(LEAKS)} that look ahead."
