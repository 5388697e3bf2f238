"""The rig of notebook 21: what it runs is what `generate` says, and what it counts is counted right."""

from __future__ import annotations

import pytest
import torch
from record_same_prompt import changes, evidence, fills_up, in_batches, three_suspects, with_hidden

from helpers import plots
from helpers.model import shipped
from helpers.model.generate import generate
from helpers.model.one_shape import in_one_shape
from helpers.recording.same_prompt import Reply, answer, first_other, in_ways, marked, recorded
from helpers.trace import compare

torch.set_num_threads(1)

MODEL, TOKENIZER = shipped.load()
TEXTS = ["Carla writes from Toronto . Carla", "It was", "Emma writes from Cairo"]
PROMPTS = [TOKENIZER.encode(text) for text in TEXTS]


def test_each_reply_is_what_generate_says() -> None:
    """In float32, at steps that are far from a tie; each way is fed the same words."""
    expected = [list(generate(MODEL, prompt, 9, eos_ids=())) for prompt in PROMPTS]
    assert [reply.tokens for reply in answer(MODEL, PROMPTS, 9)] == expected
    assert [reply.tokens for reply in in_batches(MODEL, PROMPTS, 9, 2)] == expected
    ways = in_ways(MODEL, PROMPTS, 9)
    for reply in ways.values():
        torch.testing.assert_close(reply.logits, ways["alone"].logits, rtol=0, atol=1e-4)


def test_all_ways_in_one_shape_have_the_same_bits() -> None:
    ways = in_ways(in_one_shape(MODEL), PROMPTS, 4).values()
    assert len({reply.logits.numpy().tobytes() for reply in ways}) == 1


def reply(*logits: list[float]) -> Reply:
    return Reply([line.index(max(line)) for line in logits], torch.tensor(logits))


def test_changes_are_counted_up_to_the_first_other_word() -> None:
    same, tie = [5.0, 1.0, 2.0], [4.0, 4.0, 0.0]
    before, after = reply(same, tie, tie), reply(same, [4.0, 4.5, 0.0], same)
    assert changes([before, before], [after, before]) == (1, 2 + 3, 1 + 2)


def test_the_first_other_word_stands_in_brackets() -> None:
    a, b = ["the", "soup", "in"], ["the", "pie", "in"]
    assert marked({"a": a, "b": b}) == ["a:", "  … the [soup] in", "b:", "  … the [pie] in"]
    assert marked({"a": a, "b": a})[3] == "  the soup in"


def test_one_suspect_has_a_bug_which_the_trace_places() -> None:
    pairs = three_suspects(MODEL, TOKENIZER, TEXTS[0], 8)
    found = {name[0]: evidence(a, b, 2.0**-23) for name, (a, b) in pairs.items()}
    differences = {name: line[3] for name, line in found.items()}
    assert found["B"][1:3] == pytest.approx((17.74, 17.74 * 2.0**-23), rel=0.003)
    assert differences["C"] < 1e-4 < 1e-2 < differences["B"]
    where = {name[0]: str(compare(a, b)) for name, (a, b) in pairs.items()}
    assert where["C"] == "equal"
    assert where["B"].startswith("cached, pass 1 (decode): layer 3, ")


def test_hidden_keys_change_where_a_group_is_full_and_nothing_else() -> None:
    assert [n for n in range(6, 30) if fills_up(n, 4)] == [6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29]
    alt = plots.hidden_keys(["to", "the"], 7, 4, 8, [100, 85], [False, True]).alt
    assert "to: 7 keys, 7 of them filled up, 100 logits differ; the: 8 keys, none filled up" in alt
    [one], [other] = (
        answer(model, PROMPTS[:1], 9) for model in (MODEL, with_hidden(MODEL, 4, lambda n: fills_up(n, 4)))
    )
    torch.testing.assert_close(other.logits, one.logits, rtol=0, atol=1e-4)


def test_what_was_recorded_is_what_the_page_says() -> None:
    found = recorded()
    carla, diaries = found["Carla"], found["diaries"]
    assert [*carla["hidden keys in"].values()] == [0, 0]
    at = first_other(carla["alone"], carla["beside seven"])
    assert (at, carla["two words"]) == (10, ["soup", "pie"])
    assert [n for n in range(11) if carla["exactly level"][n]] == [0, 3, 8, 10]
    assert diaries["float32"]["texts that changed"] == 0
    assert diaries["bfloat16"]["two words exactly level"] > diaries["bfloat16"]["words compared"] / 6
    off = {name[0]: difference / mark for name, (_, _, mark, difference) in found["pairs"].items()}
    assert off["A"] < 1 < off["C"] < 4 < 50_000 < off["B"]
