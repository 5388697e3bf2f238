"""What each part adds to a logit, and what is left when a part is off."""

from __future__ import annotations

import pytest
import torch

from helpers import corpus
from helpers.model import shipped
from helpers.model.contributions import added, contributions, name_bars
from helpers.model.probe import without_heads, without_mlp
from helpers.recording.diary import load_diary
from tests.tiny import tiny, tokens


@pytest.mark.parametrize("tied", [False, True])
def test_the_parts_sum_to_the_stream_and_the_bars_to_the_difference_of_the_logits(tied: bool) -> None:
    model, ids = tiny(dtype=torch.float64, tied=tied), tokens(1, 7)
    parts = added(model, ids)
    assert [*parts][:3] + [*parts][-1:] == ["embedding", "attention 1", "MLP 1", "MLP 3"]
    adds, logits = contributions(model, parts, 3, [1, 5, 7]), model(ids)[0, -1]
    assert torch.allclose(model.lm_head(model.norm(sum(parts.values()))), logits)
    difference = logits[3] - logits[[1, 5, 7]].mean()
    assert sum(adds.values()) == pytest.approx(difference.item(), abs=1e-12)
    assert min(map(abs, adds.values())) > 1e-4
    assert not any(module._forward_hooks for module in model.modules())


def test_an_mlp_that_is_off_adds_nothing_to_the_last_token_and_the_same_to_the_others() -> None:
    model, ids = tiny(), tokens(1, 7)
    before, after = (added(one, ids) for one in (model, without_mlp(model, 1)))
    off, others = after.pop("MLP 2"), ("embedding", "attention 1", "MLP 1", "attention 2")
    assert not off.any()
    assert before["MLP 2"].any()
    assert all(torch.equal(before[part], after[part]) for part in others)
    assert torch.equal(without_mlp(model, 1)(ids)[0, :-1], model(ids)[0, :-1])


def test_the_head_finds_the_name_and_the_mlp_says_it() -> None:
    model, tokenizer = shipped.load()
    off = {
        "as trained": model,
        "head off": without_heads(model, [shipped.FINDS_NAMES]),
        "MLP 1 off": without_mlp(model, 0),
    }
    bars = {name: name_bars(one, tokenizer, shipped.DIARY, "Mia") for name, one in off.items()}
    assert [one.says.split()[0] for one in bars.values()] == ["Mia", "Kofi", "by"]
    adds = bars["as trained"].adds
    assert max(adds, key=lambda part: adds[part]) == "MLP 1"
    logits = model(torch.tensor([tokenizer.encode(shipped.DIARY)]))[0, -1]
    name, *others = tokenizer.encode(" ".join(["Mia", *({*corpus.NAMES} - {"Mia"})]))
    assert sum(adds.values()) == pytest.approx((logits[name] - logits[others].mean()).item(), abs=1e-4)


def test_the_diary_is_the_recorded_one_and_its_pair_was_kept_out_of_training() -> None:
    recorded = [token.text for token in load_diary().sequences[0].tokens]
    assert shipped.DIARY.split() == recorded[: recorded.index("by") + 1]
    assert corpus.is_held_out("Mia", "Oslo")
