"""Tools that look into an operation or a model."""

from __future__ import annotations

import pytest
import torch

from helpers.model.cache import GrowingCache
from helpers.model.generate import prefill
from helpers.model.probe import hidden_states, without_heads
from tests.tiny import tiny, tokens


def test_without_heads_their_contexts_go_nowhere_and_the_others_stay() -> None:
    model, contexts = tiny(), torch.randn(6, 8)
    for heads in ([0], [5], [1, 4]):
        changed = without_heads(model, [(1, head) for head in heads])
        output = changed.get_submodule("layers.1.self_attn.o_proj")(contexts.flatten())
        others = contexts.clone()
        others[heads] = 0
        assert torch.equal(output, model.get_submodule("layers.1.self_attn.o_proj")(others.flatten()))


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
