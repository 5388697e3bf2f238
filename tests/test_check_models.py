"""Part II's exercises: what is right is what the model does, and wrong answers that look right are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from helpers.check import n05, n06, n07, n08, n09, n10, n13
from helpers.check.exercise import Exercise
from helpers.cost.models import MODELS
from helpers.model.attention import Attention
from helpers.model.transformer import Transformer
from tests.tiny import tiny_config

torch.set_num_threads(1)


def test_split_is_that_of_the_model() -> None:
    config = tiny_config()
    x = torch.randn(2, 5, config.n_heads * config.head_dim)
    assert torch.equal(n05.split_heads.right(x, config.n_heads), Attention(config, 0).split_heads(x))


@pytest.mark.parametrize(("T", "S"), [(1, 5), (4, 4), (3, 7)])
def test_masks_are_those_of_torch(T: int, S: int) -> None:
    """The weights of even scores say what is seen: aligned at the last key, and top-left with is_causal."""
    q, k, v = torch.zeros(1, 1, T, 4), torch.zeros(1, 1, S, 4), torch.eye(S)[None, None]
    wrong = n05.torch_mask.wrong[0]
    top_left = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0] > 0
    lower_right = F.scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(T, S))[0, 0] > 0
    assert torch.equal(n05.torch_mask.right(T, S), lower_right)
    assert "is_causal" in wrong.reason
    assert torch.equal(wrong.answers[0](T, S), top_left)


def test_operations_move_what_their_names_say() -> None:
    moved = [n06.moves()(f, x) for f, x in n06.operations().values()]
    attention, linear, norm, centred, wrong_norm, handed_on, sums = moved
    for table in (attention, sums):
        assert np.array_equal(table, np.tri(len(table), dtype=bool))
    for table in (linear, norm, centred):  # 3 of 7, as is said
        assert np.array_equal(table, np.eye(len(table), dtype=bool))
    assert wrong_norm.all()
    assert np.array_equal(handed_on, np.tri(4) - np.tri(4, k=-2) > 0)


def test_a_tensor_that_an_answer_writes_to_is_a_copy() -> None:
    ids = n06.shift_targets.cases[0].args[0].clone()
    told = n06.shift_targets(lambda tokens: (tokens.sub_(1)[:, :-1], tokens[:, 1:])).message
    assert "changes its first argument" in told
    assert torch.equal(n06.shift_targets.cases[0].args[0], ids)


def test_torchs_random_numbers_are_the_same_after_a_check() -> None:
    torch.manual_seed(7)
    expected = torch.randn(3)
    torch.manual_seed(7)
    n06.who_moves(lambda f, x: torch.randn(3))
    assert torch.equal(torch.randn(3), expected)


def test_counts_are_those_of_the_table_and_of_a_model() -> None:
    for name in n06.PUBLISHED:
        assert n06.published(name).n_parameters == MODELS[name].n_parameters
    config = tiny_config(tied=True)
    assert n06.count_parameters.right(config) == sum(w.numel() for w in Transformer(config).parameters())


def test_greedy_differs_only_where_it_may() -> None:
    """Move every logit by at most the largest difference: the choice changes in no row called safe."""
    generator = torch.Generator().manual_seed(2)
    for case in n07.may_differ.cases:
        a, b = case.args
        largest, may = n07.largest(a, b), torch.tensor(n07.may_differ.right(a, b))
        for _ in range(200):
            moved = a + largest * (2 * torch.rand(a.shape, generator=generator) - 1)
            assert torch.equal(moved.argmax(1)[~may], a.argmax(1)[~may])
        up = 1.001 * largest * (1 - 2 * F.one_hot(a.argmax(1), a.shape[1]))  # the best falls, others rise
        assert torch.equal((a + up).argmax(1) != a.argmax(1), may)


def test_what_is_said_of_a_right_answer() -> None:
    assert [int(rows.sum()) for rows in n05.torch_mask.expected[:3]] == [11, 5, 10]
    assert n07.may_differ.expected[0].tolist() == [True, False, True, False, True]
    assert round(n07.predict_tpot.expected[0], 2) == 10.79
    kib = [count / 1024 for count in n08.bytes_per_token.expected]
    names = ["SmolLM2-135M", "Llama-3.1-8B", "Llama-2-7B"]
    assert kib == [22.5, 128, 512, 160]
    assert kib[:3] == [MODELS[name].cache_nbytes_per_token() / 1024 for name in names]
    assert n08.longest_context.expected[:4] == [74_075, 8_539, 8_192, 0]
    assert [round(nbytes / 2**20) for nbytes in n09.cache_bytes.expected[:5]] == [125, 125, 512, 3520, 67]
    assert n09.users_that_fit.expected[:4] == [65, 72, 10, 0]
    assert n09.fit_log.expected[0] == (1000, 20)


# Wrong answers that come close.


def append_written_first(cache: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Write as many rows as there is room for, and raise then."""
    n_free = cache.max_len - cache.length
    rows = n07.appending()(cache, layer, k[:, :, :n_free], v[:, :, :n_free])
    if k.shape[2] > n_free:
        raise ValueError("full")
    return rows


def but_second(x: Tensor, n_heads: int) -> Tensor:
    """Split all sequences but the second."""
    split = n05.split_heads.right(x, n_heads)
    return torch.cat([split[:1], split[1:2].flip(1), split[2:]])


def two_cells(f: Any, x: Tensor) -> np.ndarray:
    """Take two tokens for what they are not."""
    table = n06.moves()(f, x)
    table[[2, 0], [0, 1]] ^= True
    return table


def raising_another(cache: Any, layer: int, k: Tensor, v: Tensor) -> Any:
    """Refuse with the wrong error."""
    if cache.length + k.shape[2] > cache.max_len:
        raise IndexError("full")
    return n07.append.right(cache, layer, k, v)


def takes_level(p: Any, q: Any, token: int, u: float) -> Any:
    """Take a word that p never says."""
    return None if u * q[token] <= p[token] else n13.accept_or_resample.right(p, q, token, u)


CLOSE: list[tuple[Exercise, Any, str]] = [
    (
        n05.split_heads,
        but_second,
        "head 0 at token 0 of sequence 1 numbers 40, 41, 42, … of token 0; expected",
    ),
    (
        n05.split_heads,
        lambda x, H: n05.split_heads.right(x, H).bfloat16() + 1,
        "numbers 1, 2, 3, … of token 0",
    ),
    (
        n05.torch_mask,
        lambda T, S: np.tri(T, S, S - T) > 0,
        "an array of shape (2, 6); expected a tensor of True",
    ),
    (n05.cached_step, lambda *rows: n05.step(*rows)[0], "expected contexts (2, 6, 1, 8), K and V"),
    (n05.cached_step, lambda *rows: (n05.step(*rows)[0], *n05.step(*rows)[:0:-1]), "gives K[0, 0, 0] as"),
    (n06.who_moves, lambda f, x: torch.eye(x.shape[1]) > 0, "as changing token 0 changes f(x) at 1"),
    (n06.who_moves, lambda f, x: torch.ones(2 * [x.shape[1]]).tril() > 0, "a linear layer"),
    (n06.who_moves, two_cells, "at [2, 0]; expected True, as changing token 0 changes f(x) at 2"),
    (
        n06.shift_targets,
        lambda ids: (ids[:, :-1], torch.cat([ids[:1, 1:], ids[1:, 1:] + 1])),
        "4 with 8, 9, 2, 5",
    ),
    (n06.count_parameters, lambda config: 134_515_008, "expected 8,030,261,248: 7,895,746,240 too few"),
    (n07.append, raising_another, "raises IndexError; expected ValueError"),
    (n07.append, append_written_first, "changes row 5 of cache.k[0], row 5 of cache.v[0]; expected no row"),
    (n07.append, lambda *args: [part.clone() for part in n07.appending()(*args)], "expected views"),
    (n07.append, lambda *args: n07.appending()(*args)[::-1], "gives other rows than those stored"),
    (n07.append, lambda cache, layer, k, v: n07.appending()(cache, 0, k, v), "row 3 of cache.k[0], row"),
    (n07.may_differ, lambda a, b: n07.margin(b) <= 2 * n07.largest(a, b), "gives True for token 3"),
    (n07.may_differ, lambda a, b: n07.margin(a) <= 2 * (a - b).abs().mean(), "token 0"),
    (n07.may_differ, lambda a, b: n07.may_differ.right(a.log_softmax(1), b.log_softmax(1)), "0.5, 1, 0.25"),
    (n08.bytes_per_token, lambda config: 23_040, "gives 22.5 KiB; expected 128 KiB"),
    (n08.bytes_per_token, lambda config: 1024, "gives 1 KiB; expected 22.5 KiB"),
    (n08.first_difference, n08.first(lambda x, y: (x.abs() - y.abs()).abs().max()), "sign of one number"),
    (n08.first_difference, n08.first(lambda x, y: (x.sum() - y.sum()).abs()), "at position 0 of layer 1"),
    (n08.first_difference, n08.first(lambda x, y: (x - y).norm()), "0.005 everywhere"),
    (n08.first_difference, n08.first(lambda x, y: ((x - y) / y).abs().max()), "layer 3"),
    (n08.longest_context, lambda ram, weights, row, most: min(74_075, most), "in 16 GiB"),
    (n10.predict_step, lambda *args: 1.01 * n10.predict_step.right(*args), "gives 0.82 ms; expected 0.81 ms"),
    (
        n13.accept_or_resample,
        takes_level,
        "p = [0.7, 0.0, 0.3], q = [0.4, 0.6, 0.0], token 1, u = 0.0 gives None",
    ),
]


@pytest.mark.parametrize(("checker", "answer", "told"), CLOSE)
def test_a_wrong_answer_that_comes_close_is_told_without_a_reason(
    checker: Exercise, answer: Any, told: str
) -> None:
    """A reason is given for what it fits; none of these is a listed mistake."""
    result = checker(answer)
    assert result.state == "not right yet", result
    assert told in result.message
    assert result.reason == ""
