"""The rig of notebook 21: what it runs is what `generate` says, and what it counts is counted right."""

from __future__ import annotations

from math import sqrt

import pytest
import torch

from helpers.chapters import n21
from helpers.chapters.n21 import (
    GreedyReply,
    first_difference_index,
    generate_batch,
    load_recorded_results,
    mark_first_difference,
)
from helpers.model import shipped
from helpers.model.generate import generate
from helpers.trace import compare_words, read_logprobs
from tools.same_prompt import (
    answer_in_batches,
    count_changes,
    count_different_logits,
    record_suspect_pairs,
    top_2_margin,
    with_hidden_keys,
    with_more_rows,
)

torch.set_num_threads(1)

MODEL, TOKENIZER = shipped.load_shipped()
TEXTS = ["Carla writes from Toronto . Carla", "It was", "Emma writes from Cairo"]
PROMPTS = [TOKENIZER.encode(text) for text in TEXTS]


def test_each_reply_is_what_generate_says() -> None:
    """In float32, at steps that are far from a tie, in a batch and with what a batch brings along."""
    expected = [list(generate(MODEL, prompt, 9, eos_ids=())) for prompt in PROMPTS]
    assert [reply.tokens for reply in generate_batch(MODEL, PROMPTS, 9)] == expected
    assert [reply.tokens for reply in answer_in_batches(MODEL, PROMPTS, 9, 2)] == expected
    [alone], [again] = generate_batch(MODEL, PROMPTS[:1], 9), generate_batch(MODEL, PROMPTS[:1], 9)
    assert count_different_logits(alone, again) == 0
    for changed in (with_hidden_keys(MODEL, 4), with_more_rows(MODEL, 7)):
        [reply] = generate_batch(changed, PROMPTS[:1], 9, alone.tokens)
        torch.testing.assert_close(reply.logits, alone.logits, rtol=0, atol=1e-4)


def test_hidden_keys_alone_explain_the_batch() -> None:
    """In bfloat16 they make the same logits as seven neighbours, unless rows matter to the processor, too."""
    narrow = shipped.load_shipped()[0].bfloat16()
    prompts = [TOKENIZER.encode(text) for text in n21.BATCH_PROMPTS]
    [alone] = generate_batch(narrow, prompts[:1], 24)
    in_batch = generate_batch(narrow, prompts, 24, alone.tokens)[0]
    [hidden] = generate_batch(with_hidden_keys(narrow, 4), prompts[:1], 24, alone.tokens)
    [rows] = generate_batch(with_more_rows(narrow, 7), prompts[:1], 24, alone.tokens)
    assert count_different_logits(in_batch, hidden) == 0 or count_different_logits(alone, rows) > 0


def reply(*logits: list[float]) -> GreedyReply:
    return GreedyReply([line.index(max(line)) for line in logits], torch.tensor(logits))


def test_changes_are_counted_up_to_the_first_other_word() -> None:
    same, tie = [5.0, 1.0, 2.0], [4.0, 4.0, 0.0]
    before, after = reply(same, tie, tie), reply(same, [4.0, 4.5, 0.0], same)
    assert count_changes([before, before], [after, before]) == (1, 2 + 3, 1 + 2)


def test_the_first_other_word_stands_in_brackets() -> None:
    a, b = ["the", "soup", "in"], ["the", "pie", "in"]
    assert mark_first_difference({"a": a, "b": b}) == ["a:", "  … the [soup] in", "b:", "  … the [pie] in"]
    assert mark_first_difference({"a": a, "b": a})[3] == "  the soup in"


def test_what_was_recorded_is_what_the_page_says() -> None:
    found = load_recorded_results()
    carla, diaries = found["Carla"], found["diaries"]
    hidden, rows, batch = carla["apart"].values()
    assert (hidden["bfloat16"], rows["bfloat16"]) == (batch["bfloat16"], 0)
    assert min(hidden["float32"], rows["float32"]) > 3000
    at = first_difference_index(carla["alone"], carla["beside seven"])
    assert (at, carla["two words"]) == (10, ["soup", "pie"])
    assert diaries["float32"]["texts that changed"] == 0
    texts, words, level = diaries["bfloat16"].values()
    assert texts > 200
    assert level > words / 6
    assert f"{hidden['bfloat16'] / 4440:.0%}" == "44%"


def test_one_of_three_pairs_has_a_bug_and_no_word_shows_it() -> None:
    """As recorded, and as this processor does it."""
    assert all(
        a == b for pair in n21.load_run_comparisons().values() for a, b in (one.words for one in pair.words)
    )
    found = record_suspect_pairs(MODEL, shipped.load_shipped()[0].bfloat16(), TOKENIZER)
    for pairs in (load_recorded_results()["pairs"], found):
        off = {name[0]: max(line[3] for line in one["places"]) for name, one in pairs.items()}
        assert off["C"] < 2e-5 < 1e-2 < min(off["A"], off["B"])


def test_only_the_bug_lies_above_its_line() -> None:
    pairs = n21.load_run_comparisons().values()
    assert [sum(one.difference > pair.rounding_limit for one in pair.words) for pair in pairs] == [0, 23, 0]
    assert [sum(one.margin <= 2 * one.difference for one in pair.words) for pair in pairs] == [9, 3, 0]
    lines = [pair.rounding_limit for pair in pairs]
    shares = [max(one.difference for one in pair.words) / pair.rounding_limit for pair in pairs]
    assert max(shares[0], shares[2]) < 1 / 8
    assert lines[0] == 8 * sqrt(4) * 2**-7 * 17.75
    assert lines[0] / lines[1] == pytest.approx(2**16, rel=0.01)


def test_two_engines_reply_as_servers_do() -> None:
    plain, other = map(read_logprobs, n21.responses_of_two_engines(TEXTS[2], 5))
    assert [one.word for one in plain] == TOKENIZER.words(list(generate(MODEL, PROMPTS[2], 5)))
    found = compare_words(plain, other)
    assert len(found) == 5
    assert max(place.difference for place in found) < 1e-4
    [reply] = generate_batch(MODEL, PROMPTS[2:], 5)
    assert [place.margin for place in found] == pytest.approx(top_2_margin(reply.logits).tolist(), abs=1e-4)
