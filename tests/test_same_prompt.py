"""The rig of notebook 21: what it runs is what `generate` says, and what it counts is counted right."""

from __future__ import annotations

import pytest
import torch

from helpers import plots
from helpers.model import shipped
from helpers.model.generate import generate
from helpers.model.one_shape import in_one_shape
from helpers.recording.same_prompt import (
    Reply,
    answer,
    changes,
    counted,
    evidence,
    in_batches,
    in_three_ways,
    marked,
    nearly_level,
    three_suspects,
)
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
    ways = in_three_ways(MODEL, PROMPTS[0], PROMPTS[1:], 9)
    for reply in ways.values():
        torch.testing.assert_close(reply.logits, ways["alone"].logits, rtol=0, atol=1e-4)


def test_three_ways_in_one_shape_have_the_same_bits() -> None:
    ways = in_three_ways(in_one_shape(MODEL), PROMPTS[0], PROMPTS[1:], 4).values()
    assert len({reply.logits.numpy().tobytes() for reply in ways}) == 1


def reply(*logits: list[float]) -> Reply:
    return Reply([line.index(max(line)) for line in logits], torch.tensor(logits))


def test_changes_are_counted_up_to_the_first_other_word() -> None:
    same, tie = [5.0, 1.0, 2.0], [4.0, 4.0, 0.0]
    before, after = reply(same, tie, tie), reply(same, [4.0, 4.5, 0.0], same)
    assert changes([before, before], [after, before]) == (1, 2 + 3, 1 + 2, [0.0], [0.5])


def test_the_first_other_word_stands_in_brackets() -> None:
    a, b = reply([0.0, 1.0], [0.0, 1.0]), reply([0.0, 1.0], [1.0, 0.0])
    said, also = TOKENIZER.words([1, 0])
    assert marked(TOKENIZER, {"a": a, "b": b}) == [
        "a:",
        f"  … {said} [{said}]",
        "b:",
        f"  … {said} [{also}]",
    ]
    assert marked(TOKENIZER, {"a": a, "b": a})[3] == f"  {said} {said}"


def test_one_suspect_has_a_bug_which_the_trace_places() -> None:
    pairs = three_suspects(MODEL, TOKENIZER, TEXTS[0], 8)
    found = {name[0]: evidence(a, b, 2.0**-23) for name, (a, b) in pairs.items()}
    differences = {name: line[3] for name, line in found.items()}
    assert found["B"][1:3] == pytest.approx((17.74, 17.74 * 2.0**-23), rel=0.003)
    assert differences["C"] < 1e-4 < 1e-2 < differences["B"]
    where = {name[0]: str(compare(a, b)) for name, (a, b) in pairs.items()}
    assert where["C"] == "equal"
    assert where["B"].startswith("cached, pass 1 (decode): layer 3, ")


def test_two_words_are_nearly_level_where_another_is_said_or_else_where_the_lead_is_least() -> None:
    a, b = reply([5.0, 1.0, 2.0], [4.0, 4.5, 0.0]), reply([5.0, 1.0, 2.0], [4.5, 4.25, 0.0])
    assert nearly_level(TOKENIZER, a, b) == (TOKENIZER.words([1, 0]), [[4.5, 4.0], [4.25, 4.5]])
    assert nearly_level(TOKENIZER, a, a)[1] == [[4.5, 4.0], [4.5, 4.0]]


def test_blocks_are_filled_up_with_zeros() -> None:
    told = "1 token: 1 block, 7 zeros; 8 tokens: 1 block, 0 zeros; 11 tokens: 2 blocks, 5 zeros."
    assert plots.in_blocks([1, 8, 11], 8).alt.endswith(told)


def test_what_was_counted_is_what_the_page_says() -> None:
    found = counted()
    assert found["float32"]["texts that changed"] == 0
    assert found["bfloat16"]["two words exactly level"] > found["bfloat16"]["words compared"] / 8


def test_sizes_with_the_same_bits_are_told_as_ranges() -> None:
    alt = plots.same_bits({"rows": [[1], [2, 3], [4, 5, 6]], "keys": [[0, 2], [1]]}).alt
    assert alt.endswith("rows: 1; 2 and 3; 4 to 6. keys: 0 and 2; 1.")
