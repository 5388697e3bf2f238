"""Exercises of the chapters: right answers are those of the model, and nearly right ones are found wrong."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.chapters import n02, n03, n04, n05, n07, n09, n10, n12, n14, n17, n18, n19, n21, n24
from helpers.check.exercise import Exercise
from helpers.check.guess import check_ratio_guess

torch.set_num_threads(1)


def test_operations_move_information_as_named() -> None:
    moved = [n07.make_who_moves()(f, x) for f, x in n07.operations_with_inputs().values()]
    attention, linear, norm, centred, wrong_norm, handed_on = moved
    assert np.array_equal(attention, np.tri(5, dtype=bool))
    for table in (linear, norm, centred):  # 3 of 6, as the notebook says
        assert np.array_equal(table, np.eye(len(table), dtype=bool))
    assert wrong_norm.all()
    assert np.array_equal(handed_on, np.tri(4) - np.tri(4, k=-2) > 0)


def test_a_check_leaves_torchs_random_state_unchanged() -> None:
    torch.manual_seed(7)
    expected = torch.randn(3)
    torch.manual_seed(7)
    n07.who_moves(lambda f, x: torch.randn(3))
    assert torch.equal(torch.randn(3), expected)


def test_guessed_times_are_right_within_a_fifth() -> None:
    assert check_ratio_guess(8, (1, 4, 8), 5.8).is_right
    assert [n09.check_times_as_long_guess(guess, 40.4).is_right for guess in (33, 48, 32, 49)] == [
        True,
        True,
        False,
        False,
    ]


# Wrong answers that come close.


def stores_twice(cache: n04.LayerCaches, number: float) -> np.ndarray:
    """Decode, and store one more entry."""
    contexts = n04.decode_token(cache, number)
    cache[-1][1].append(number)
    return contexts


def makes_keys_again(cache: n04.LayerCaches, number: float) -> np.ndarray:
    """Decode in one layer, but compute the keys from positions instead of reading the cache."""
    for keys, _ in cache:
        keys[:] = [[n % 2 == 0, n] for n in range(1, len(keys) + 1)]
    return n04.decode_token(cache, number)


def merges_as_one_head(o1: Tensor, a: Tensor, o2: Tensor, b: Tensor) -> Tensor:
    """Merge every head with the weights of the first head."""
    return n19.merge.right_answer(o1, a[:1].expand_as(a), o2, b[:1].expand_as(b))


def not_to_zero(table: np.ndarray, state: int) -> list[int]:
    """Treat state 0 as if it were no state."""
    words: list[int] = []
    while (table[state] > 0).sum() == 1:
        words.append(int(table[state].argmax()))
        state = table[state].max()
    return words


def ends_alike(old: list[int], new: list[int], size: int) -> int:
    """Compare the first and the last token of each page."""
    return n17.count_shared_pages(
        [x for n, x in enumerate(old) if n % size in (0, size - 1)],
        [x for n, x in enumerate(new) if n % size in (0, size - 1)],
        min(size, 2),
    )


def by_letters(old: list[str], new: list[str]) -> int:
    """Compare two texts letter by letter, and count the words of the part that is equal."""
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(" ".join(old), " ".join(new), strict=False))
    return len("".join(a for a, _ in equal).split())


def by_the_middle(pause: Any, step: Any, P: int, n: int) -> tuple[float, float]:
    """Assume that each step takes as long as the middle one."""
    kept, nothing = n09.reply_ms.right_answer(pause, step, P, n)
    return (pause(P) + (n - 1) * step(P + (n - 2) / 2) if n > 1 else kept), nothing


def null_is_no_default(config: dict[str, Any]) -> Any:
    """Treat null as a number of KV heads."""
    n_kv_heads = config.get("num_key_value_heads", config["num_attention_heads"])
    return n10.kv_nbytes_per_token(config) if n_kv_heads else 0


two_runs = n02.make_future_test
CLOSE: list[tuple[Exercise, Any, str]] = [
    (n02.change_future, two_runs(lambda table: table[1:3]), "first token sees all gives True; expected"),
    (n02.change_future, two_runs(lambda table: table[[0, 2]]), "whose middle token sees all gives True"),
    (n02.change_future, lambda prefill: prefill(n02.NUMBERS)[0, 1] > 0, "prefill of other heads gives False"),
    (
        n03.generate,
        lambda step, prompt, max_new_tokens: step([]),
        "hands step no words; expected the list of all",
    ),
    (
        n03.generate,
        lambda step, prompt, max_new_tokens: [step(prompt) for _ in iter(int, 1)],
        "over 50 times",
    ),
    (n04.decode_step, stores_twice, "leaves V of layer 1 with an answer of shape (6,); expected shape (5,)"),
    (n04.decode_step, makes_keys_again, "decode_step after keys that were changed gives"),
    (
        n05.mask,
        lambda T, S: n05.causal_mask(T, S) & (np.arange(S) != 5),
        "query 2 of 2 see keys 1, 2, 3, 4, 5;",
    ),
    (n07.who_moves, lambda f, x: torch.eye(x.shape[1]) > 0, "as changing token 0 changes f(x) at 1"),
    (n07.who_moves, lambda f, x: torch.ones(2 * [x.shape[1]]).tril() > 0, "a linear layer"),
    (
        n07.who_moves,
        lambda f, x: n07.make_who_moves()(f, x) ^ (np.eye(5, k=-2) + np.eye(5, k=1) > 0),
        "at [2, 0];",
    ),
    (n10.bytes_per_token, lambda config: 23_040, "gives 23,040; expected 131,072"),
    (n10.bytes_per_token, lambda config: 1024, "gives 1,024; expected 23,040"),
    (n10.bytes_per_token, null_is_no_default, "num_key_value_heads null, gives 0"),
    (
        n12.batch_at_ridge,
        lambda card, s: n12.batch_at_ridge.right_answer(card, s) + 2,
        "gives 298; expected 296",
    ),
    (n02.change_future, two_runs(lambda table: table[:-1].sum(axis=0)), "but no column's sum gives True"),
    (n05.reusable, by_letters, "Today weather island gives 3; expected 2"),
    (n09.reply_ms, by_the_middle, "P = 10, n = 3"),
    (
        n14.kept_entries,
        lambda n, w, s: n14.kept_positions(n, w + (n == w + 1), s),
        "kept_entries(5, 4, 0) gives",
    ),
    (n17.shared_pages, ends_alike, "'axcdefg', 3), a letter a token gives 2; expected 0"),
    (
        n17.shared_pages,
        lambda old, *new: n17.count_shared_pages(old[:-1], *new),
        "'abcdefgh', 3), a letter",
    ),
    (n18.accept, lambda d, c: [*takewhile(c.__contains__, d)], "accept("),
    (n19.merge, merges_as_one_head, "merge for"),
    (n24.must_come, not_to_zero, "whose end is state 0"),
    (
        n21.may_change,
        lambda x, d: n21.top_two_margin(x) < 2 * d,
        "may_change([10.125, 10.0, 2.0], 0.0625) gives",
    ),
    (
        n18.accept_or_resample,
        n18.accept_with_test(lambda p, q, t, u: u * q[t] <= p[t]),
        "token 1, u = 0.0 gives None",
    ),
]


@pytest.mark.parametrize(("checker", "answer", "message"), CLOSE)
def test_nearly_right_answers_are_found_wrong(checker: Exercise, answer: Any, message: str) -> None:
    result = checker(answer)
    assert result.state == "not right yet", result
    assert message in result.message
    assert result.reason not in checker.wrong_answers


def test_values_from_the_changed_token_on_are_stale() -> None:
    assert n04.check_stale_values_guess([2, 3, 4, 5]).is_right
    assert not n04.check_stale_values_guess([2]).is_right
