"""Tools that look into an operation or a model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from helpers.model.cache import GrowingCache
from helpers.model.generate import prefill
from helpers.model.probe import hidden_states, misread, without_heads
from tests.tiny import tiny, tokens


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_a_misread_model_is_finite_and_wrong_from_its_layer_on(qkv_bias: bool) -> None:
    model = tiny(qkv_bias=qkv_bias)
    before = [weight.clone() for weight in model.parameters()]
    ids = tokens(1, 7)
    for layer in range(model.config.n_layers):
        right, wrong = (hidden_states(one, ids) for one in (model, misread(model, [layer])))
        assert len(right) == model.config.n_layers
        assert all(x.shape == (7, model.config.hidden_size) for x in right)
        assert all(x.isfinite().all() for x in wrong)
        differs = [float((x - y).abs().max()) > 1e-3 for x, y in zip(right, wrong, strict=True)]
        assert differs == [n >= layer for n in range(model.config.n_layers)]
        for x, y in zip(right, wrong, strict=True):  # position 0 sees itself alone; sums in another order
            assert torch.allclose(x[0], y[0], atol=1e-4)
    assert all(torch.equal(x, y) for x, y in zip(before, model.parameters(), strict=True))


def test_without_heads_their_contexts_go_nowhere_and_the_others_stay() -> None:
    model, contexts = tiny(), torch.randn(6, 8)
    for heads in ([0], [5], [1, 4]):
        changed = without_heads(model, [(1, head) for head in heads])
        output = changed.get_submodule("layers.1.self_attn.o_proj")(contexts.flatten())
        others = contexts.clone()
        others[heads] = 0
        assert torch.equal(output, model.get_submodule("layers.1.self_attn.o_proj")(others.flatten()))


def test_misread_stores_the_pairs_of_the_paper() -> None:
    model = tiny()
    D = model.config.head_dim
    weight, stored = (
        one.get_submodule("layers.0.self_attn.q_proj").weight for one in (model, misread(model, [0]))
    )
    assert isinstance(weight, Tensor)
    assert isinstance(stored, Tensor)
    assert torch.equal(stored[0:D:2], weight[: D // 2])
    assert torch.equal(stored[1:D:2], weight[D // 2 : D])


def test_hidden_states_are_those_before_the_lm_head_and_leave_no_hook() -> None:
    model, ids = tiny(), tokens(1, 3)
    last = hidden_states(model, ids)[-1]
    assert torch.allclose(model.lm_head(model.norm(last)), model(ids)[0], atol=1e-4)  # other shapes of matmul
    cache = GrowingCache(model.config)
    prefill(model, ids[0, :2], cache)
    assert torch.allclose(hidden_states(model, ids[:, 2:], cache)[-1], last[2:], atol=1e-4)
    with pytest.raises(ValueError, match="token"):
        hidden_states(model, torch.tensor([[10**6]]))
    assert not any(layer._forward_hooks for layer in model.layers)
