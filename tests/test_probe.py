"""Tools that look into an operation or a model."""

from __future__ import annotations

import torch

from helpers.model.probe import without_heads
from tests.tiny import tiny


def test_without_heads_their_contexts_go_nowhere_and_the_others_stay() -> None:
    model, contexts = tiny(), torch.randn(6, 8)
    for heads in ([0], [5], [1, 4]):
        changed = without_heads(model, [(1, head) for head in heads])
        output = changed.get_submodule("layers.1.self_attn.o_proj")(contexts.flatten())
        others = contexts.clone()
        others[heads] = 0
        assert torch.equal(output, model.get_submodule("layers.1.self_attn.o_proj")(others.flatten()))
