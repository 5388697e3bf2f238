"""The linear layer that shares its matrix between the cores gives what `nn.Linear` gives."""

from __future__ import annotations

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
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with two cores and MKL, where every matrix is large."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(fast, "LARGE", 1)


def pair(dtype: torch.dtype = torch.float32) -> tuple[nn.Linear, SharedLinear]:
    """A plain layer, 40 to 42 numbers, and one that has taken over its matrix."""
    torch.manual_seed(0)
    plain = nn.Linear(40, 42, bias=False, dtype=dtype)
    nn.init.normal_(plain.weight)
    return plain, SharedLinear(plain)


@pytest.mark.parametrize("count", [1, 2, 3, 4])  # 42 rows cannot be shared by 4
@pytest.mark.parametrize("shape", [(1, 1, 40), (40,), (1, 5, 40), (0, 40)])
def test_same_numbers(count: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    plain, shared = pair()
    x = torch.randn(shape)
    assert shared(x).shape == plain(x).shape
    torch.testing.assert_close(shared(x), plain(x), atol=BOUND, rtol=0)


def test_only_a_single_row_of_float32_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*matrices: Tensor) -> Tensor:
        raise AssertionError("the matrix was shared")

    monkeypatch.setattr(torch, "bmm", forbidden)
    for dtype, rows in ((torch.float32, 2), (torch.bfloat16, 1), (torch.float64, 1)):
        plain, shared = pair(dtype)
        x = torch.randn(1, rows, 40, dtype=dtype)
        assert torch.equal(shared(x), plain(x))
    with pytest.raises(AssertionError, match="was shared"):
        pair()[1](torch.randn(1, 1, 40))


def test_gradients_are_the_same() -> None:
    plain, shared = pair()
    x = torch.randn(1, 1, 40, requires_grad=True)
    mine, theirs = (torch.autograd.grad(f(x).square().sum(), [x, plain.weight]) for f in (shared, plain))
    torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("mkl", [True, False])
def test_large_layers_without_bias_are_replaced(mkl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(fast, "LARGE", 40 * 42)
    first = nn.Linear(40, 42, bias=False)
    block = nn.Sequential(first, nn.Linear(40, 42), nn.Linear(40, 41, bias=False))
    share_large(block)
    assert [type(layer) for layer in block] == [SharedLinear if mkl else nn.Linear, nn.Linear, nn.Linear]
    assert block.get_parameter("0.weight") is first.weight


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_says_the_same(tied: bool) -> None:
    torch.manual_seed(0)
    model, ids = Transformer(tiny_config(tied=tied, vocab_size=20)), torch.tensor([[7]])
    plain, names = model(ids), model.state_dict().keys()
    share_large(model)
    assert isinstance(model.lm_head, SharedLinear)
    assert (model.lm_head.weight is model.embed_tokens.weight) == tied
    assert model.state_dict().keys() == names
    torch.testing.assert_close(model(ids), plain)
