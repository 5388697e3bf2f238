"""Part II's checkers alone: right is what the model does, and nothing makes them raise."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.check import part2
from helpers.check.cases import Case
from helpers.check.part2.prefill_decode import _differ_cases, _differ_right
from helpers.check.part2.projections import _mask_right, _split_right
from helpers.check.part2.shared import call, read_bools, read_tensor, say, unchanged
from helpers.check.part2.transformer import COUNT_MISTAKES, COUNTED, _operations, _who_right
from helpers.check.part2.your_model import CONFIGS, _bytes
from helpers.check.result import NotRightError, NotSolvedError, Result
from helpers.model.attention import Attention, attend
from helpers.model.cache import StaticCache
from helpers.model.config_json import config_from_json
from helpers.model.transformer import Transformer
from tests.test_check import ODD_ANSWERS, STUBS
from tests.tiny import tiny, tiny_config, tokens

torch.set_num_threads(1)

TOOLS = {"hidden_states", "misread"}
CHECKERS: dict[str, Callable[..., Result]] = {
    name: getattr(part2, name) for name in part2.__all__ if name not in TOOLS
}

ODD_TENSORS: dict[str, Any] = {
    "tensor": torch.zeros(2, 3),
    "gives a tensor": lambda *args: torch.zeros(2, 3),
    "gives an empty tensor": lambda *args: torch.zeros(0),
    "gives NaN in a tensor": lambda *args: torch.full((5,), torch.nan),
    "gives bools": lambda *args: torch.zeros(5, dtype=torch.bool),
    "gives ids": lambda *args: torch.zeros(2, 5, dtype=torch.int64),
    "gives complex numbers": lambda *args: torch.zeros(2, 6, 5, 8, dtype=torch.complex64),
    "gives bfloat16": lambda *args: torch.zeros(2, 6, 5, 8, dtype=torch.bfloat16),
    "gives gradients": lambda *args: torch.zeros(2, 6, 5, 8, requires_grad=True) + 1,
    "gives a meta tensor": lambda *args: torch.zeros(2, 6, 5, 8, device="meta"),
    "gives a sparse tensor": lambda *args: torch.zeros(2, 5).to_sparse(),
    "gives two tensors": lambda *args: (torch.zeros(2, 5), torch.zeros(2, 5)),
    "gives three tensors": lambda *args: [torch.zeros(2, 6, 1, 8)] * 3,
    "gives texts and tensors": lambda *args: ("a", torch.zeros(2, 5)),
    "gives a tensor and nothing": lambda *args: (torch.zeros(2, 6, 1, 8), None, None),
    "gives a row of one-number tensors": lambda *args: [torch.tensor(1.0)] * 5,
    "gives a number as a tensor": lambda *args: torch.tensor(3.0),
    "gives its last argument": lambda *args: args[-1],
}
ODD = {**ODD_ANSWERS, **ODD_TENSORS}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", CHECKERS)
def test_an_odd_answer_gets_a_plain_line(name: str, odd: str) -> None:
    result = CHECKERS[name](ODD[odd])
    assert result.state == "not right yet"
    assert len(repr(result).splitlines()) <= 2
    assert all(len(line) <= 240 for line in repr(result).splitlines())
    assert " at 0x" not in repr(result)
    if "odd object" not in odd:
        assert "cannot be checked" not in repr(result)


@pytest.mark.parametrize("untouched", [None, ..., *STUBS])
@pytest.mark.parametrize("name", CHECKERS)
def test_nothing_is_not_solved_yet(name: str, untouched: Any) -> None:
    assert CHECKERS[name](untouched).state == "not solved yet"


@pytest.mark.parametrize("name", CHECKERS)
def test_ctrl_c_stops_a_checker(name: str) -> None:
    def stop(*args: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CHECKERS[name](stop)


def test_torch_draws_the_same_after_a_check() -> None:
    def draws(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        torch.manual_seed(int(torch.randn(1).abs() * 100))
        return torch.zeros(3)

    torch.manual_seed(7)
    expected = torch.randn(3)
    torch.manual_seed(7)
    part2.who_moves(draws)
    part2.first_difference(lambda a, b, tolerance: 0)
    assert torch.equal(torch.randn(3), expected)


# What is right is what the model does.


def test_split_is_that_of_the_model() -> None:
    config = tiny_config()
    x = torch.randn(2, 5, config.n_heads * config.head_dim)
    assert torch.equal(_split_right(x, config.n_heads), Attention(config, 0).split_heads(x))


@pytest.mark.parametrize(("T", "S"), [(1, 1), (1, 5), (2, 6), (4, 4), (3, 7)])
def test_mask_is_that_of_the_cache(T: int, S: int) -> None:
    cache = StaticCache(tiny_config(), max_len=S)
    cache.advance(S - T)
    assert torch.equal(_mask_right(T, S), cache.mask(T))


def test_top_left_is_what_is_causal_does() -> None:
    q, k = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 6, 4)
    seen = F.scaled_dot_product_attention(q, k, torch.eye(6)[None, None], is_causal=True)[0, 0] > 0
    assert torch.equal(seen, torch.ones(2, 6, dtype=torch.bool).tril())
    said = repr(part2.torch_mask(lambda T, S: torch.ones(T, S, dtype=torch.bool).tril()))
    assert "as is_causal=True does it" in said


def test_the_models_cache_appends_as_the_exercise_asks() -> None:
    """The reader's append, planted into `StaticCache`, gives the same logits as the model's own."""

    class Planted(StaticCache):
        def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return append(self, layer, k, v)

    model, ids = tiny(), tokens(1, 6)
    with torch.no_grad():
        cache = Planted(model.config, max_len=6)
        logits = torch.cat([model(chunk, cache) for chunk in ids.split([3, 1, 2], dim=1)], dim=1)
        assert torch.allclose(logits, model(ids), atol=1e-4)  # float32, sums in another order
    assert part2.append(append).solved


def append(cache: Any, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Write new rows, as the exercise asks."""
    S = cache.length + k.shape[2]
    if S > cache.max_len:
        raise ValueError("too many")
    cache.k[layer][:, :, cache.length : S] = k
    cache.v[layer][:, :, cache.length : S].copy_(v)
    return cache.k[layer].narrow(2, 0, S), cache.v[layer].narrow(2, 0, S)


@pytest.mark.parametrize("name", [name for name, config in COUNTED.items() if config.n_layers < 10])
def test_counted_parameters_are_those_of_a_model(name: str) -> None:
    model = Transformer(COUNTED[name])
    assert sum(weight.numel() for weight in model.parameters()) == COUNTED[name].n_parameters


def test_counts_known_from_elsewhere() -> None:
    assert COUNTED["SmolLM2-135M"].n_parameters == 134_515_008
    assert COUNTED["Llama-3.1-8B"].n_parameters == 8_030_261_248


def test_every_mistake_in_counting_is_one() -> None:
    for mistakes in COUNT_MISTAKES.values():
        for wrong in mistakes:
            assert any(wrong(config) != config.n_parameters for config in COUNTED.values())


@pytest.mark.parametrize("name", CONFIGS)
def test_bytes_are_those_of_the_model_config(name: str) -> None:
    data = {**CONFIGS[name], "model_type": "llama", "max_position_embeddings": 128}
    config = config_from_json(json.loads(json.dumps(data)))
    assert _bytes(CONFIGS[name]) == config.cache_nbytes_per_token(element_bytes=2)


def test_bytes_of_the_facts() -> None:
    assert [_bytes(config) / 1024 for config in CONFIGS.values()] == [22.5, 128, 512, 160]


def test_operations_move_what_their_names_say() -> None:
    x = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(1))
    moved = {operation.name: _who_right(operation, x) for operation in _operations()}
    own, every = torch.eye(5, dtype=torch.bool), torch.ones(5, 5, dtype=torch.bool)
    assert torch.equal(moved.pop("causal attention"), every.tril())
    assert torch.equal(moved.pop("a norm over the wrong axis, the tokens"), every)
    assert torch.equal(moved.pop("the mean over all tokens"), every)
    assert torch.equal(moved.pop("half of each token handed to the next"), own | own.roll(1, 0).tril())
    assert torch.equal(moved.pop("sums so far, their signs in turns"), every.tril())
    assert all(torch.equal(table, own) for table in moved.values())
    assert len(moved) == 5


def test_greedy_differs_only_where_it_may() -> None:
    """Move every logit by at most the largest difference: the choice changes in no row called safe."""
    generator = torch.Generator().manual_seed(2)
    for case in _differ_cases():
        a, b = case.args
        largest = (a - b).abs().max()
        safe = ~_differ_right(a, b)
        for _ in range(200):
            moved = a + largest * (2 * torch.rand(a.shape, generator=generator) - 1)
            assert torch.equal(moved.argmax(1)[safe], a.argmax(1)[safe])
        worst = a - largest * F.one_hot(a.argmax(1), a.shape[1]) * 1.001
        worst += largest * 1.001 * (1 - F.one_hot(a.argmax(1), a.shape[1]))
        assert torch.equal(worst.argmax(1) != a.argmax(1), ~safe)


# The tools of notebook 08.


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_a_misread_model_is_finite_and_wrong_from_its_layer_on(qkv_bias: bool) -> None:
    model = tiny(qkv_bias=qkv_bias)
    before = [weight.clone() for weight in model.parameters()]
    ids = tokens(1, 7)
    for layer in range(model.config.n_layers):
        right, wrong = (part2.hidden_states(one, ids) for one in (model, part2.misread(model, [layer])))
        assert len(right) == model.config.n_layers
        assert all(x.shape == (7, model.config.hidden_size) for x in right)
        assert all(x.isfinite().all() for x in wrong)
        differs = [float((x - y).abs().max()) > 1e-3 for x, y in zip(right, wrong, strict=True)]
        assert differs == [n >= layer for n in range(model.config.n_layers)]
        for x, y in zip(right, wrong, strict=True):  # float32, another order of sums
            assert torch.allclose(x[0], y[0], atol=1e-4)
    assert all(torch.equal(x, y) for x, y in zip(before, model.parameters(), strict=True))


def test_misread_is_the_layout_of_the_paper() -> None:
    """A misread model whose rotation turns the pairs (2i, 2i + 1) is the right one again."""
    config = tiny_config()
    D = config.head_dim
    model = tiny()
    wrong = part2.misread(model, [0])
    weight = model.get_submodule("layers.0.self_attn.q_proj").weight
    stored = wrong.get_submodule("layers.0.self_attn.q_proj").weight
    assert isinstance(weight, Tensor)
    assert isinstance(stored, Tensor)
    for i in range(D // 2):
        assert torch.equal(stored[2 * i], weight[i])
        assert torch.equal(stored[2 * i + 1], weight[i + D // 2])


def test_hidden_states_leave_no_hook() -> None:
    model = tiny()
    part2.hidden_states(model, tokens(1, 3))
    with pytest.raises(ValueError, match="token"):
        part2.hidden_states(model, torch.tensor([[10**6]]))
    assert not any(block._forward_hooks for block in model.layers)


# Other right answers than the solution's.


def step_by_hand(q: Tensor, k: Tensor, v: Tensor, K: Tensor, V: Tensor) -> list[Tensor]:
    """Attend with plain products over expanded heads, and store what was not expanded."""
    K, V = torch.concatenate([K, k], 2), torch.concatenate([V, v], 2)
    group = q.shape[1] // K.shape[1]
    scores = q @ K.repeat_interleave(group, 1).transpose(2, 3) / q.shape[-1] ** 0.5
    return [scores.softmax(-1) @ V.repeat_interleave(group, 1), K, V]


def step_by_attend(q: Tensor, k: Tensor, v: Tensor, K: Tensor, V: Tensor) -> tuple[Tensor, ...]:
    """Attend with a mask for every head."""
    K, V = torch.cat([K, k], -2), torch.cat([V, v], -2)
    mask = torch.ones(1, 1, 1, K.shape[-2], dtype=torch.bool)
    return attend(q, K, V, mask, 1 / np.sqrt(q.shape[-1])), K, V


def who_by_negating(f: Callable[[Tensor], Tensor], x: Tensor) -> np.ndarray:
    """Swap signs and compare with a tolerance, in NumPy."""
    T = x.shape[1]
    moved = np.zeros((T, T), dtype=bool)
    for j in range(T):
        changed = x.clone()
        changed[:, j] = -changed[:, j].flip(-1)
        same = np.isclose(f(changed)[0], f(x)[0], atol=1e-6)
        moved[:, j] = np.logical_not(same).any(axis=1)
    return moved


def who_by_lists(f: Callable[[Tensor], Tensor], x: Tensor) -> list[list[bool]]:
    """Give lists of bools."""
    return who_by_negating(f, x).tolist()


def who_by_jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Ask for the derivative of every number with respect to every other."""
    derivatives: Any = torch.autograd.functional.jacobian(f, x)  # (1, T, C, 1, T, C)
    return derivatives[0, :, :, 0].abs().sum(dim=(1, 3)) > 0


def who_by_gradients(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Go back from one row at a time."""
    rows = []
    for i in range(x.shape[1]):
        start = x.clone().requires_grad_()
        (f(start)[0, i] * torch.arange(1, 1 + x.shape[2])).sum().backward()
        assert start.grad is not None
        rows.append(start.grad[0].abs().sum(dim=-1) > 0)
    return torch.stack(rows)


def first_by_norm(a: list[Tensor], b: list[Tensor], tolerance: float) -> int | None:
    """Compare with allclose."""
    return next((n for n in range(len(a)) if not torch.allclose(a[n], b[n], rtol=0, atol=tolerance)), None)


def line_by_hand(contexts: list[int], milliseconds: list[float], context: int) -> float:
    """Fit by the normal equations."""
    x, y = torch.tensor(contexts, dtype=torch.float64), torch.tensor(milliseconds, dtype=torch.float64)
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    return float(y.mean() + slope * (context - x.mean()))


OTHER_RIGHT_ANSWERS: list[tuple[str, Any]] = [
    ("split_heads", lambda x, n: torch.stack(x.chunk(n, dim=-1), dim=1)),
    ("split_heads", lambda x, n: x.transpose(1, 2).reshape(len(x), n, -1, x.shape[1]).transpose(2, 3)),
    ("split_heads", lambda x, n: torch.tensor(x.numpy().reshape(*x.shape[:2], n, -1).swapaxes(1, 2))),
    ("torch_mask", lambda T, S: torch.tril(torch.ones(T, S), S - T).bool()),
    ("torch_mask", lambda T, S: torch.tensor([[k <= q for k in range(S)] for q in range(S - T, S)])),
    ("cached_step", step_by_hand),
    ("cached_step", step_by_attend),
    ("who_moves", who_by_negating),
    ("who_moves", who_by_lists),
    ("who_moves", who_by_jacobian),
    ("who_moves", who_by_gradients),
    ("shift_targets", lambda ids: [ids[..., :-1].clone(), ids.narrow(1, 1, ids.shape[1] - 1)]),
    ("count_parameters", lambda config: config.n_parameters),
    ("count_parameters", lambda config: np.float64(config.n_parameters)),
    ("append", append),
    ("may_differ", lambda a, b: (_differ_right(a, b)).numpy()),
    ("may_differ", lambda a, b: _differ_right(a, b).tolist()),
    ("may_differ", lambda a, b: list(_differ_right(a, b))),
    ("predict_tpot", line_by_hand),
    ("predict_tpot", lambda *args: torch.tensor(line_by_hand(*args))),
    ("predict_tpot", lambda x, y, n: np.polyval(np.polyfit(x, y, 1), n)),
    ("bytes_per_token", lambda config: np.int64(_bytes(config))),
    ("first_difference", first_by_norm),
    ("first_difference", lambda *args: None if (n := first_by_norm(*args)) is None else torch.tensor(n)),
    ("longest_context", lambda g, w, b, most: float(max(0, min(most, int((g * 1024**3 - w) / b))))),
]


@pytest.mark.parametrize(("name", "answer"), OTHER_RIGHT_ANSWERS)
def test_another_right_answer_is_right(name: str, answer: Any) -> None:
    assert CHECKERS[name](answer).solved, CHECKERS[name](answer)


@pytest.mark.parametrize(("name", "answer"), OTHER_RIGHT_ANSWERS)
def test_right_is_right_in_a_session_of_float64(name: str, answer: Any) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert CHECKERS[name](answer).solved, CHECKERS[name](answer)
    finally:
        torch.set_default_dtype(torch.float32)


# What they share.


def test_call_hands_out_copies_and_finds_changes() -> None:
    x, y = torch.zeros(2), [torch.zeros(3)]
    with pytest.raises(NotRightError, match="f changes its first argument"):
        call(lambda x, y: x.add_(1), Case("f", (x, y)), "")
    with pytest.raises(NotRightError, match="f changes its second argument"):
        call(lambda x, y: y[0].add_(1), Case("f", (x, y)), "")
    with pytest.raises(NotRightError, match="f changes its second argument"):
        call(lambda x, y: y.pop(), Case("f", (x, y)), "")
    assert not x.any()
    assert not y[0].any()


def test_call_knows_stubs_and_none() -> None:
    with pytest.raises(NotSolvedError, match="write it"):
        call(STUBS[0], Case("f", (1,)), "write it")
    with pytest.raises(NotSolvedError, match="write it"):
        call(STUBS[0], Case("f", (1,)), "write it", none=3)
    assert call(lambda x: print(end=""), Case("f", (1,)), "write it", none=3) == 3
    with pytest.raises(NotRightError, match="f gives None"):
        call(lambda x: print(end=""), Case("f", (1,)), "write it")


def test_call_records_no_gradients() -> None:
    weight = torch.ones(2, requires_grad=True)
    assert not call(lambda x: x * weight, Case("f", (torch.ones(2),)), "").requires_grad
    assert call(lambda x: x * weight, Case("f", (torch.ones(2),)), "", gradients=True).requires_grad


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ([1, 2], [1, 2], True),
        ([1, 2], [1, 3], False),
        ({"a": 1}, {"a": 2}, False),
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.ones(2, 1), False),
        (len, print, True),
    ],
)
def test_unchanged(before: Any, after: Any, same: bool) -> None:
    assert unchanged(before, after) is same


def test_tensors_are_told_by_their_shape() -> None:
    assert say(torch.zeros(2, 3)) == "a tensor of shape (2, 3)"
    assert say([torch.zeros(2), 1]) == "a list of 2 parts"
    assert say("a") == "'a' (str)"
    with pytest.raises(NotRightError, match=r"f gives keys of shape \(3,\); expected \(2,\)\."):
        read_tensor(torch.zeros(3), "f", (2,), what="keys")
    with pytest.raises(NotRightError, match=r"f gives 5 \(int\); expected a tensor of shape \(2,\)\."):
        read_tensor(5, "f", (2,))


def test_bools_may_come_in_several_forms() -> None:
    wanted = np.array([True, False])
    forms: list[Any] = [
        wanted,
        [True, False],
        torch.tensor(wanted),
        (torch.tensor(True), torch.tensor(False)),
    ]
    assert all(np.array_equal(read_bools(form, "f", (2,)), wanted) for form in forms)
    with pytest.raises(NotRightError, match="expected True and False"):
        read_bools(torch.tensor([1, 0]), "f", (2,))


def test_the_checkers_file_stands_in_part_two_alone() -> None:
    folder = Path(part2.__file__).parent
    assert folder.name == "part2"
    assert "torch" not in (folder.parent / "cases.py").read_text(encoding="utf-8")
