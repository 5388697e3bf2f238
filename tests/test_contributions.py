"""What each part adds to a logit, and what is left when a part is off."""

from __future__ import annotations

import pytest
import torch

from helpers import corpus
from helpers.model import shipped
from helpers.model.contributions import logit_contributions, residual_contributions
from helpers.model.probe import without_heads
from helpers.recording.diary import load_diary
from tests.tiny import tiny, tokens


@pytest.mark.parametrize("tied", [False, True])
def test_contributions_sum_to_logit_difference(tied: bool) -> None:
    model, ids = tiny(dtype=torch.float64, tied=tied), tokens(1, 7)
    parts = residual_contributions(model, ids)
    assert [*parts][:3] + [*parts][-1:] == ["embedding", "attention 1", "MLP 1", "MLP 3"]
    adds, logits = logit_contributions(model, parts, 3, [1, 5, 7]), model(ids)[0, -1]
    assert torch.allclose(model.lm_head(model.norm(sum(parts.values()))), logits)
    difference = logits[3] - logits[[1, 5, 7]].mean()
    assert sum(adds.values()) == pytest.approx(difference.item(), abs=1e-12)
    assert min(map(abs, adds.values())) > 1e-4
    assert not any(module._forward_hooks for module in model.modules())


def test_diary_is_recorded_and_held_out() -> None:
    recorded = [token.text for token in load_diary().sequences[0].tokens]
    assert shipped.DIARY.split() == recorded[: recorded.index("by") + 1]
    assert corpus.is_held_out("Mia", "Oslo")


def test_without_heads_removes_their_contexts_only() -> None:
    model, contexts = tiny(), torch.randn(6, 8)
    for heads in ([0], [5], [1, 4]):
        changed = without_heads(model, [(1, head) for head in heads])
        output = changed.get_submodule("layers.1.self_attn.o_proj")(contexts.flatten())
        others = contexts.clone()
        others[heads] = 0
        assert torch.equal(output, model.get_submodule("layers.1.self_attn.o_proj")(others.flatten()))
