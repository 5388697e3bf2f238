"""Checkers of notebook 04, the KV cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from helpers import toy
from helpers.check.cases import (
    Case,
    Mistakes,
    call,
    compare,
    is_number,
    read_number,
    read_row,
    tell_mask,
    with_reason,
)
from helpers.check.part1.shared import CARRIED, T, mean, pick_even
from helpers.check.result import NotRightError, NotSolvedError, describe, exercise, same, show

DECODE_TODO = "let decode_step append the new row to the cache and return the four contexts."


class KVCache(toy.KVCache):
    """A cache that counts the rows appended to it, and notes an advance before its append."""

    def __init__(self) -> None:
        super().__init__()
        self.n_appended = 0
        self.early = False

    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Store new rows as any cache does, and count them."""
        rows = super().append(layer, k, v)
        self.n_appended += len(v)
        return rows

    def advance(self, T: int) -> None:
        """Count T tokens as stored, and note whether their rows are there."""
        self.early |= self.length + T > len(self.k[0])
        super().advance(T)


def _filled(numbers: Sequence[float]) -> KVCache:
    """Return a cache that holds the rows of these numbers, and has counted nothing yet."""
    cache = KVCache()
    toy.run_pass(numbers, cache)
    cache.n_appended = 0
    return cache


def _attend_rows(position: int, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the contexts of one query over these rows."""
    q, _, _ = toy.make_qkv(np.array([position]), np.zeros(1))
    return toy.attention(q, k, v, np.ones((1, len(v)), dtype=bool))[0]


def _decode_at(shift: Callable[[int], int]) -> Callable[[list[float], float], np.ndarray]:
    """Return a decode step that takes the new token to stand somewhere else than behind the others."""

    def decode(numbers: list[float], number: float) -> np.ndarray:
        cache, position = _filled(numbers), shift(len(numbers))
        _, k, v = toy.make_qkv(np.array([position]), np.array([number]))
        return _attend_rows(position, *cache.append(0, k, v))

    return decode


def _decode_right(numbers: list[float], number: float) -> np.ndarray:
    return toy.decode_step(_filled(numbers), number)


def _decode_early(numbers: list[float], number: float) -> np.ndarray:
    cache = _filled(numbers)
    return _attend_rows(len(numbers) + 1, cache.k[0], cache.v[0])


def _decode_top_left(numbers: list[float], number: float) -> np.ndarray:
    cache = _filled(numbers)
    return _attend_rows(len(numbers) + 1, cache.k[0][:1], cache.v[0][:1])


def _decode_alone(numbers: list[float], number: float) -> np.ndarray:
    position = len(numbers) + 1
    _, k, v = toy.make_qkv(np.array([position]), np.array([number]))
    return _attend_rows(position, k, v)


DECODE_MISTAKES: Mistakes = {
    "attended before appending: the new token has to see its own row too.": [_decode_early],
    "position restarted at 1: ask the cache where the new token stands.": [_decode_at(lambda n: 1)],
    "position restarted at 0: ask the cache where the new token stands.": [_decode_at(lambda n: 0)],
    "the position of the last stored token: the new one stands behind it.": [_decode_at(lambda n: n)],
    "a position too far: the new token stands right behind the stored ones.": [_decode_at(lambda n: n + 2)],
    "the new token attends to its own row alone; use the keys and values that append returns.": [
        _decode_alone
    ],
    "the stored rows are gone: use the cache that comes in, as it is.": [
        lambda numbers, number: toy.run_pass([number])[-1]
    ],
    "the mask hides every row: True is where the query may look.": [
        lambda numbers, number: np.zeros(len(toy.HEADS))
    ],
    "the mask is aligned top-left: the new token, the last of all, sees row 1 alone.": [_decode_top_left],
    "those are the logits; return the contexts that they are read from.": [
        lambda numbers, number: toy.readout(_decode_right(numbers, number))
    ],
}
WRAP = "make_qkv takes arrays, np.array([number]), and append the k and v that it returns."
DECODE_ERRORS = {
    "broadcast": "the mask is (1, S): ask for positions and mask of one token, before cache.advance.",
    "k (1,) and v (1, 2)": "make_qkv returns queries, keys and values, in this order.",
    "and v (1,)": "one number has one position: cache.positions(1).",
    "v ()": WRAP,
    "'int' object": WRAP,
    "'list' object": WRAP,
    "has no len()": "make_qkv takes arrays, the position too: cache.positions(1).",
    "matmul": "attention takes q, the keys and values that append returns, and the mask, in this order.",
    "IndexError": "the cache counts layers from 0, and this one has one: cache.append(0, k, v).",
}


def _decode_cases() -> list[Case]:
    runs = [(CARRIED, 14), ([*CARRIED, 14], 12), ([3, 8, 4], 6)]
    return [
        Case(f"decode_step, {number} after {show(numbers)},", (numbers, number)) for numbers, number in runs
    ]


def _decode_once(function: Any, case: Case) -> np.ndarray:
    """Run the reader's step on a cache of its own, and read the four contexts."""
    numbers, number = case.args
    return _read_contexts(function, Case(case.label, (_filled(numbers), number)))


def _read_contexts(function: Any, case: Case) -> np.ndarray:
    hints = {
        (1, len(toy.HEADS)): "these are the contexts in a table of one row: return that row, contexts[0].",
        (1,): "this is one head's context: return the row of all four, contexts[0].",
    }
    try:
        value = call(function, case, DECODE_TODO)
    except NotRightError as stop:
        raise with_reason(stop, DECODE_ERRORS) from None
    return read_row(value, case, len(toy.HEADS), hints)


def _check_rows(function: Any) -> int:
    """Run two steps on one cache, and return how many rows it holds after the first."""
    cache, twin = _filled(CARRIED), _filled(CARRIED)
    for n, number in enumerate((14, 12), 1):
        got = _read_contexts(function, Case(f"decode_step, step {n} on one cache,", (cache, number)))
        wanted = toy.decode_step(twin, number)
        _check_length(cache, twin, n)
        if not same(got, wanted):
            raise NotRightError(f"step {n} on one cache gives {show(got)}; expected {show(wanted)}.")
        if not same(cache.v[0], twin.v[0]):
            v = f"V holds {show(cache.v[0])}; expected {show(twin.v[0])}"
            raise NotRightError(f"after step {n} the cache's {v}.")
        if not same(cache.k[0], twin.k[0]):
            k = f"last K row is {show(cache.k[0][-1])}; expected {show(twin.k[0][-1])}"
            raise NotRightError(f"after step {n} the cache's {k}: [is the position even, position].")
        _check_work(cache, n)
    return T + 1


def _check_work(cache: KVCache, n: int) -> None:
    """Raise if a step did more than append one row and then advance."""
    if cache.n_appended > n:
        reason = RUN_AGAIN if cache.n_appended > 2 else "one row was appended twice; append each row once."
        raise NotRightError(f"step {n} on one cache appends {cache.n_appended} rows; expected 1.", reason)
    if cache.early:
        message = f"step {n} on one cache advances before the row is appended; expected append, then advance."
        raise NotRightError(
            message, "append writes where `length` stands; advance counts the row afterwards."
        )


def _check_keys_used(function: Any) -> None:
    """Raise if a step does not read the keys in the cache, as one that runs the old numbers again."""
    cache, twin = _filled(CARRIED), _filled(CARRIED)
    for one in (cache, twin):
        one.k[0][:, 0] = 1 - one.k[0][:, 0]
    label = "decode_step on a cache whose marks for even positions are swapped"
    got, wanted = _read_contexts(function, Case(label, (cache, 14))), toy.decode_step(twin, 14)
    if not same(got, wanted):
        raise NotRightError(
            f"{label} gives {show(got)}; expected {show(wanted)}.", f"its keys are not read: {RUN_AGAIN}"
        )


RUN_AGAIN = "old tokens were run again; their rows are in the cache already."


def _length_reason(cache: KVCache, n: int) -> str:
    """Say why the cache does not count one row more after each of n steps."""
    more = cache.length - (T + n - 1)
    if more == 0 and len(cache.v[0]) < T + n:
        return "the new row is not in the cache; append it, so that no token has to be run again."
    if more == 0:
        return "no cache.advance(1) after the append: the next token would overwrite this row."
    if cache.n_appended > n:
        return RUN_AGAIN
    return "the cache was advanced twice, or by more than the 1 token that is new." if more > 1 else ""


def _check_length(cache: KVCache, twin: toy.KVCache, n: int) -> None:
    """Raise unless the reader's cache counts as many rows as ours, and holds them."""
    if cache.length != twin.length:
        message = f"after step {n} cache.length is {cache.length}; expected {twin.length}."
        raise NotRightError(message, _length_reason(cache, n))
    stored = len(cache.k[0]), len(cache.v[0])
    if stored != (twin.length, twin.length):
        rows = f"cache.length is {cache.length}, K has {stored[0]} rows and V has {stored[1]}"
        raise NotRightError(f"after step {n} {rows}; expected {twin.length} of each.")


@exercise
def decode_step(answer: Any) -> str:
    """04: `decode_step(cache, number)` runs one token through one layer and returns its four contexts, (4,).

    `cache` is a `toy.KVCache` that holds the earlier rows; the new row is in it afterwards.
    """
    expected = compare(
        answer, _decode_cases(), attempt=_decode_once, right=_decode_right, mistakes=DECODE_MISTAKES
    )
    n_rows = _check_rows(answer)
    _check_keys_used(answer)
    return f"{show(expected[0])}, and {n_rows} rows in the cache; the next step is right too."


STALE_TODO = "let stale return the list of the rows of V that change."
OWN_TOKEN = "K and V depend on their own token only in layer 1; deeper, row i carries all tokens up to i."
BEFORE = "rows before the change are listed; they cannot see a later token."
STALE_MISTAKES: Mistakes = {
    OWN_TOKEN: [
        lambda layer, j, n: [j],
        lambda layer, j, n: [*range(j, n + 1)] if layer == 2 else [j],
        lambda layer, j, n: [j] if layer <= 2 else [*range(j, n + 1)],
    ],
    "in layer 1 a row is made from its own token alone (and layers count from 1).": [
        lambda layer, j, n: [*range(j, n + 1)]
    ],
    BEFORE: [
        lambda layer, j, n: [j] if layer == 1 else [*range(1, n + 1)],
        lambda layer, j, n: [j] if layer == 1 else [*range(1, j + 1)],
        lambda layer, j, n: [*range(1, n + 1)],
        lambda layer, j, n: [*range(1, j + 1)],
    ],
    "the other way round: layer 1 is the one in which a row depends on its own token only.": [
        lambda layer, j, n: [*range(j, n + 1)] if layer == 1 else [j]
    ],
    "row j changes in layer 1: it is made from token j.": [
        lambda layer, j, n: [] if layer == 1 else [*range(j, n + 1)],
        lambda layer, j, n: [],
    ],
    "a change spreads to all rows behind it in one layer, because a context sees all tokens before it.": [
        lambda layer, j, n: [*range(j, min(n, j + layer - 1) + 1)],
        lambda layer, j, n: [*range(j, j + layer)],
    ],
    "there is no row n + 1: range(j, n + 1) ends with n.": [
        lambda layer, j, n: [j] if layer == 1 else [*range(j, n + 2)]
    ],
    "counted from 0; rows count from 1.": [
        lambda layer, j, n: [j - 1] if layer == 1 else [*range(j - 1, n)],
        lambda layer, j, n: [j] if layer == 1 else [*range(j - 1, n)],
    ],
    "row n is left out: a range stops before its end.": [
        lambda layer, j, n: [j] if layer == 1 else [*range(j, n)]
    ],
    "row j is left out; it sees its own token.": [
        lambda layer, j, n: [j] if layer == 1 else [*range(j + 1, n + 1)],
        lambda layer, j, n: [*range(j + 1, n + 1)],
    ],
}


def _stale_right(layer: int, j: int, n: int) -> list[int]:
    return [j] if layer == 1 else list(range(j, n + 1))


def _stale_once(function: Any, case: Case) -> list[int]:
    value = call(function, case, STALE_TODO)
    kinds = list | tuple | set | range | np.ndarray
    rows: list[Any] = list(value) if isinstance(value, kinds) else [None]
    flags = rows and all(isinstance(row, bool | np.bool_) for row in rows)
    if flags or not all(isinstance(row, int | np.integer) for row in rows):
        reason = "True and False for each row; list the numbers of the rows that change." if flags else ""
        raise NotRightError(f"{case.label} gives {describe(value)}; expected a list of row numbers.", reason)
    return sorted(rows)


@exercise
def stale(answer: Any) -> str:
    """04: `stale(layer, j, n)` lists the rows of V in a layer that change with token j of n; all from 1."""
    inputs = [(1, 2, 5), (2, 2, 5), (2, 4, 6), (3, 2, 4), (1, 6, 6), (2, 3, 3), (4, 1, 3)]
    cases = [Case(f"stale{args}", args) for args in inputs]
    expected = compare(answer, cases, attempt=_stale_once, right=_stale_right, mistakes=STALE_MISTAKES)
    return f"row {show(expected[0])} in layer 1, rows {show(expected[1])} in layer 2, and five other cases."


REUSE_TODO = "let reusable return how many rows of the old tokens' cache can be kept."
OSLO = ["Oslo", *toy.PROMPT]
OSLO_NUMBERS = [8, *CARRIED]
ONLY_A_PREFIX = "only a common prefix is reusable: after the first difference, rows carry another beginning."


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many tokens the two have in common at the start."""
    together = [*(a == b for a, b in zip(old, new, strict=False)), False]
    return together.index(False)


def _longest_run(old: list[str], new: list[str]) -> int:
    """Return the length of the longest stretch of tokens that both have somewhere."""
    return max((_common(old[i:], new[j:]) for i in range(len(old)) for j in range(len(new))), default=0)


def _common_or(end: Callable[[list[str], list[str]], int]) -> Callable[[list[str], list[str]], int]:
    """Return a count that is right if something differs, and something else if one list begins the other."""
    return lambda old, new: n if (n := _common(old, new)) < min(len(old), len(new)) else end(old, new)


def _letters(old: list[str], new: list[str]) -> int:
    """Return how many tokens the common beginning of the two texts touches."""
    texts = " ".join(old), " ".join(new)
    return len(texts[0][: _common(*texts)].split())


REUSE_MISTAKES: Mistakes = {
    "no row was kept; those of a common beginning can be.": [lambda old, new: 0],
    f"common words were counted wherever they stand; {ONLY_A_PREFIX}": [
        lambda old, new: len(set(old) & set(new)),
        lambda old, new: sum(word in new for word in old),
        lambda old, new: sum(word in old for word in new),
        lambda old, new: [*(word in new for word in old), False].index(False),
        lambda old, new: [*(word in old for word in new), False].index(False),
    ],
    f"words after the first difference were counted; {ONLY_A_PREFIX}": [
        lambda old, new: sum(a == b for a, b in zip(old, new, strict=False))
    ],
    f"the common end was counted; {ONLY_A_PREFIX}": [lambda old, new: _common(old[::-1], new[::-1])],
    f"the longest common stretch was counted; {ONLY_A_PREFIX}": [_longest_run],
    "all or nothing: where only a part of the beginning is common, that part can be kept.": [
        lambda old, new: len(old) if new[: len(old)] == old else 0,
        lambda old, new: len(old) if " ".join(new).startswith(" ".join(old)) else 0,
    ],
    "only the first token is compared; go on to the first difference.": [
        lambda old, new: len(old) if new[:1] == old[:1] else 0,
        lambda old, new: min(len(old), len(new)) if new[:1] == old[:1] else 0,
    ],
    "where nothing differs, the whole of the shorter list is common.": [
        _common_or(lambda old, new: 0),
        _common_or(lambda old, new: -1),
        _common_or(lambda old, new: len(old)),
        _common_or(lambda old, new: len(new)),
    ],
    "letters are compared, not tokens: the end of the common text may be a part of a word.": [_letters],
    "a row counts once: it is kept in both layers or in neither.": [lambda old, new: 2 * _common(old, new)],
    "the last token's row can be kept too; that it has to run again for its logits is another matter.": [
        lambda old, new: max(min(_common(old, new), len(new) - 1), 0)
    ],
    "every row was kept, whatever the new tokens are.": [
        lambda old, new: len(old),
        lambda old, new: min(len(old), len(new)),
    ],
    "one too few: the last common token's row is right too.": [
        lambda old, new: max(_common(old, new) - 1, 0),
        lambda old, new: _common(old, new) - 1,
    ],
    "one too many: the first token that differs has another row.": [
        lambda old, new: _common(old, new) + 1,
        lambda old, new: min(_common(old, new) + 1, len(old), len(new)),
    ],
    "that is how many have to be run; the others can be kept.": [
        lambda old, new: len(new) - _common(old, new)
    ],
    "that is how many are dropped; the others can be kept.": [lambda old, new: len(old) - _common(old, new)],
}


def _reuse_cases() -> list[Case]:
    prompt = list(toy.PROMPT)
    pairs = [
        (prompt, [*prompt, "nice"]),
        (prompt, OSLO),
        (prompt, ["Today", "weather", "was", "so"]),
        (prompt, ["Today", "weather"]),
        (prompt, ["so", "is", "weather", "Today"]),
        (["so", "so", "nice"], ["so", "so", "so", "nice"]),
        (prompt, prompt),
        ([], prompt),
        (["so", "nice"], ["so", "nicer"]),
    ]
    trap = "one list may be shorter than the other, or empty."
    return [Case(f"reusable for {_phrase(old)} → {_phrase(new)}", (old, new), trap) for old, new in pairs]


def _phrase(words: list[str]) -> str:
    return " ".join(words) or "no tokens"


def _check_even(value: Any) -> float:
    """Return what `even` gives at `so` behind Oslo, or raise unless the reader has it."""
    right = pick_even(OSLO_NUMBERS)
    if not is_number(value):
        raise NotRightError(f"even_at_so is {describe(value)}; expected a number.")
    if same(value, right):
        return right
    reasons = {
        pick_even(CARRIED): "the old rows were reused, but every position moved: only a prefix is reusable.",
        mean(OSLO_NUMBERS[::2]): (
            "counted from 0 (Oslo stands at position 1, which is odd), or added up, not averaged."
        ),
        mean(OSLO_NUMBERS): "that is the head `all`.",
        sum(OSLO_NUMBERS[1::2])
        / len(OSLO_NUMBERS): "divided by all tokens; divide by those that were picked.",
        mean([8, 10, 20]): "even numbers were picked; the head picks even positions.",
        10.0: "that is one of them; give the average of both.",
    }
    expected = "expected the average of the numbers that now stand at positions 2 and 4"
    reason = next((text for wrong, text in reasons.items() if same(value, wrong)), "")
    raise NotRightError(f"even_at_so is {show(float(value))}; {expected}.", reason)


@exercise
def reuse_rows(even_at_so: Any, reusable: Any) -> str:
    """04: what `even` gives at `so` behind Oslo (8); `reusable(old, new)` says how many rows can be kept."""
    if even_at_so is ... or even_at_so is None:
        raise NotSolvedError("write what `even` gives at `so` when Oslo (8) stands in front.")
    even = _check_even(even_at_so)
    todo = f"even_at_so, {show(even)}, is right; now {REUSE_TODO}"
    cases = _reuse_cases()
    expected = compare(
        reusable,
        cases,
        attempt=lambda function, case: read_number(call(function, case, todo), case),
        right=_common,
        mistakes=REUSE_MISTAKES,
    )
    nice, oslo = map(show, expected[:2])
    return f"{show(even)} at `so`; {nice} rows can be kept when `nice` follows, {oslo} behind Oslo."


MASK_TODO = "let mask return (T, S), True where one of the T newest tokens may look at one of all S."


def _mask_right(T: int, S: int) -> np.ndarray:
    return np.tri(T, S, S - T, dtype=bool)


MASK_MISTAKES: Mistakes = {
    "aligned top-left: the T new tokens stand at the end of the S, so query 1 sees S - T + 1 keys.": [
        lambda T, S: np.tri(T, S, dtype=bool),
        lambda T, S: np.tri(T, S, dtype=bool) if T > 1 else np.ones((T, S), dtype=bool),
    ],
    "no mask: a query sees tokens that come after it.": [lambda T, S: np.ones((T, S), dtype=bool)],
    "upside down: True where the query may not look.": [lambda T, S: ~_mask_right(T, S)],
    "upside down, True where the query may not look, and aligned top-left.": [
        lambda T, S: ~np.tri(T, S, dtype=bool)
    ],
    "mirrored: a query sees itself and before, not after.": [
        lambda T, S: ~np.tri(T, S, S - T - 1, dtype=bool),
        lambda T, S: ~np.tri(T, S, -1, dtype=bool),
    ],
    "shifted by one: a query sees itself too.": [lambda T, S: np.tri(T, S, S - T - 1, dtype=bool)],
    "shifted by one: a query does not see the token after it.": [
        lambda T, S: np.tri(T, S, S - T + 1, dtype=bool)
    ],
    "the stored tokens are hidden; a new token sees all of them.": [
        lambda T, S: _mask_right(T, S) & (np.arange(S) >= S - T)
    ],
    "the new tokens see the stored ones only; each sees itself and the new ones before it too.": [
        lambda T, S: np.arange(S) < np.full((T, 1), S - T),
        lambda T, S: (np.arange(S) < S - T) | np.eye(T, S, S - T, dtype=bool),
    ],
    "the columns of the new tokens are put first; they are the last T.": [
        lambda T, S: np.roll(_mask_right(T, S), T, axis=1)
    ],
    "the diagonal is shifted by another number: query 1 sees S - T + 1 keys, so np.tri shifts it by S - T.": [
        lambda T, S: np.tri(T, S, T - S, dtype=bool),
        lambda T, S: np.tri(T, S, T, dtype=bool),
        lambda T, S: np.tri(T, S, S, dtype=bool),
    ],
    "each query sees itself alone; it sees what came before too.": [
        lambda T, S: np.eye(T, S, S - T, dtype=bool)
    ],
}


MASK_ERRORS = {"broadcast": "queries go down and keys across: make a column of the queries with [:, None]."}


def _mask_once(function: Any, case: Case) -> np.ndarray:
    T, S = case.args
    try:
        table = np.asarray(call(function, case, MASK_TODO))
    except NotRightError as stop:
        raise with_reason(stop, MASK_ERRORS) from None
    except ValueError:
        raise NotRightError(f"{case.label} gives rows of unequal length; expected shape {(T, S)}.") from None
    if table.shape != (T, S):
        hints = {
            (S, T): "transposed: rows are queries, columns are keys.",
            (T, T): "the stored tokens have columns too, S in all.",
            (S, S): "the stored tokens are no queries of this pass; it has T rows.",
            (S,): "that is one row; each of the T queries has one.",
        }
        reason = hints.get(table.shape, "")
        raise NotRightError(f"{case.label} has shape {table.shape}; expected {(T, S)}.", reason)
    if table.dtype.kind in "iuf":
        message = f"{case.label} holds numbers ({table.dtype}); expected True and False."
        raise NotRightError(message, "0 and 1, or 0 and -inf, in place of True where the query may look.")
    if table.dtype != bool:
        reason = "an array of objects: make it with dtype=bool." if table.dtype == object else ""
        raise NotRightError(f"{case.label} has dtype {table.dtype}; expected bool, True and False.", reason)
    return table


@exercise
def mask(answer: Any) -> str:
    """04: `mask(T, S)` is (T, S), True where one of T new tokens, the last of all S, may look."""
    shapes = [(2, 6), (1, 5), (4, 4), (3, 7), (1, 1)]
    expected = compare(
        answer,
        [Case(f"mask{shape}", shape) for shape in shapes],
        attempt=_mask_once,
        right=_mask_right,
        mistakes=MASK_MISTAKES,
        tell=lambda got, expected: tell_mask(got, expected, first=1),
    )
    seen = [f"{int(table.sum())} in mask{shape}" for shape, table in zip(shapes, expected, strict=True)]
    return f"visible cells: {', '.join(seen[:3])}."
