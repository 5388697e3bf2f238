"""The linear layer that shares its matrix between the cores gives what `nn.Linear` gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from helpers.model import fast
from helpers.model.fast import SharedLinear, share_large
from helpers.model.transformer import Transformer
from tests.tiny import tiny_config

# Sums of 40 float32 numbers, in another order: a few units in the last place of numbers up to 10.
BOUND = 1e-5


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Set the number of threads back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def pair(dtype: torch.dtype = torch.float32) -> tuple[nn.Linear, SharedLinear]:
    """A plain layer, 40 to 42 numbers, and one that has taken over its matrix."""
    torch.manual_seed(0)
    plain = nn.Linear(40, 42, bias=False, dtype=dtype)
    nn.init.normal_(plain.weight)
    return plain, SharedLinear(plain)


@pytest.mark.parametrize("count", [1, 2, 3, 4])  # 42 rows cannot be shared by 4
@pytest.mark.parametrize("shape", [(1, 1, 40), (1, 40), (40,), (1, 5, 40), (5, 1, 40), (0, 40)])
def test_same_numbers(count: int, shape: tuple[int, ...]) -> None:
    torch.set_num_threads(count)
    plain, shared = pair()
    x = torch.randn(shape)
    assert shared(x).shape == plain(x).shape
    torch.testing.assert_close(shared(x), plain(x), atol=BOUND, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_take_the_plain_way(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "bmm", forbidden)
    torch.set_num_threads(2)
    plain, shared = pair(dtype)
    x = torch.randn(1, 1, 40, dtype=dtype)
    assert torch.equal(shared(x), plain(x))


def forbidden(*matrices: Tensor) -> Tensor:
    raise AssertionError("the matrix was shared")


def test_only_a_single_row_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "bmm", forbidden)
    torch.set_num_threads(2)
    _, shared = pair()
    shared(torch.randn(1, 2, 40))
    with pytest.raises(AssertionError, match="was shared"):
        shared(torch.randn(1, 1, 40))


def test_gradients_are_the_same() -> None:
    torch.set_num_threads(2)
    plain, shared = pair()
    x = torch.randn(1, 1, 40, requires_grad=True)
    mine, theirs = (torch.autograd.grad(f(x).square().sum(), [x, plain.weight]) for f in (shared, plain))
    torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-4)


def test_large_layers_without_bias_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(fast, "LARGE", 40 * 42)
    first = nn.Linear(40, 42, bias=False)
    block = nn.Sequential(first, nn.Linear(40, 42), nn.Linear(40, 41, bias=False))
    share_large(block)
    assert [type(layer) for layer in block] == [SharedLinear, nn.Linear, nn.Linear]
    assert block.get_parameter("0.weight") is first.weight


def test_without_mkl_nothing_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: False)
    monkeypatch.setattr(fast, "LARGE", 1)
    block = nn.Sequential(nn.Linear(40, 42, bias=False))
    share_large(block)
    assert type(block[0]) is nn.Linear


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_says_the_same(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    plain = Transformer(tiny_config(tied=tied, vocab_size=20))
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(fast, "LARGE", 1)
    torch.manual_seed(0)
    shared = Transformer(tiny_config(tied=tied, vocab_size=20))
    share_large(shared)
    assert isinstance(shared.lm_head, SharedLinear)
    assert (shared.lm_head.weight is shared.embed_tokens.weight) == tied
    assert shared.state_dict().keys() == plain.state_dict().keys()
    with torch.no_grad():
        torch.testing.assert_close(shared(torch.tensor([[7]])), plain(torch.tensor([[7]])))
