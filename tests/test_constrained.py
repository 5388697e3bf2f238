"""Only valid words: tables compared with a kept library, valid texts, probabilities."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import llguidance
import llguidance.numpy as bits
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.constrained import decoding, grammar
from helpers.constrained.grammar import (
    CHARACTERS,
    FOODS,
    NONE,
    PERSON,
    forced_words,
    states_after,
    tabulate,
)
from helpers.model.cache import StaticCache
from helpers.model.generate import prefill
from helpers.sampling import Sampling, greedy, make_chooser
from helpers.tokenizer import Tokenizer
from tests.test_tokenizer import of_characters
from tests.tiny import tiny

torch.set_num_threads(1)

ONE = tabulate(PERSON, "{person}", CHARACTERS)
# A small form over the 19 words of the tiny model: choices, loops (one to the start), a forced run, and words
# that begin alike.
SMALL = {
    "{all}": [("1", "{more}"), ("1", "2", "3", "0"), ("12", "13", "{all}")],
    "{more}": [("4", "5", "6", "{more}"), ("4", "7", "0"), ("8", "9", "10", "11", "0"), ("2", "{more}")],
}
TABLE = tabulate(SMALL, "{all}", [str(i) for i in range(19)])
MODEL = tiny(seed=2, dtype=torch.float64, max_seq_len=200, eos_ids=(0,))
PROMPT = [3, 1, 4, 1, 5]
seeds = st.integers(0, 2**32)


def whole(table: np.ndarray, words: list[int]) -> bool:
    """Whether a text follows the grammar to the end."""
    states = states_after(table, 0, words)
    return NONE not in states and bool((table[states[-1]] == NONE).all())


def new_cache() -> StaticCache:
    """Return an empty cache of the tiny model."""
    return StaticCache(MODEL.config, dtype=torch.float64)


def test_grammar_equals_llguidance_in_every_state() -> None:
    """The same JSON as a schema, through llguidance; it leaves the stop token out of a forced run."""
    name = {"type": "string", "pattern": "^[A-Z][a-z]{1,7}$"}
    parts = {"name": name, "age": {"type": "integer", "minimum": 0, "maximum": 99}}
    parts["likes"] = {"type": "array", "items": {"enum": [*FOODS]}, "minItems": 1, "maxItems": 3}
    schema = {"type": "object", "properties": parts, "required": [*parts], "additionalProperties": False}
    rules = llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(schema | {"x-guidance": {"whitespace_flexible": False}})
    )
    tokens = llguidance.LLTokenizer("byte")
    matcher, mask = llguidance.LLMatcher(tokens, rules), bits.allocate_token_bitmask(1, tokens.vocab_size)
    byte = [tokens.eos_token, *map(ord, CHARACTERS[1:])]
    prefixes: dict[int, list[int]] = {0: []}
    for state in (queue := [0]):
        matcher.reset()
        assert matcher.consume_tokens(prefixes[state])
        bits.fill_next_token_bitmask(matcher, mask)
        expected = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        actual = np.flatnonzero(ONE[state] != NONE)
        assert sorted(byte[i] for i in actual) == expected.tolist()
        assert matcher.compute_ff_tokens() == [byte[i] for i in forced_words(ONE, state) if i]
        for i in actual[actual > 0]:
            if (to := int(ONE[state, i])) not in prefixes:
                prefixes[to] = [*prefixes[state], byte[i]]
                queue.append(to)
    assert len(prefixes) == len(ONE) - 1  # except the state after <eos>


def test_token_is_allowed_if_its_characters_are() -> None:
    pieces = ['{"', "name", '":"', "M", "ia", '","age', "x", "", "<eos>", "é", "soup"]
    lifted = grammar.lift_to_tokens(ONE, CHARACTERS, pieces)
    assert lifted.shape == (len(ONE), len(pieces))
    for state, (i, piece) in product(range(len(ONE)), enumerate(pieces)):
        parts = [piece] if piece == "<eos>" else [*piece]
        ids = [CHARACTERS.index(part) for part in parts if part in CHARACTERS] if piece != "é" else []
        assert lifted[state, i] == (states_after(ONE, state, ids)[-1] if ids else NONE)
    assert NONE not in states_after(lifted, 0, [0, 1, 2, 3, 4, 5])


def test_tokens_that_begin_with_a_space() -> None:
    """Every path through a table over the tokens of a tokenizer like Llama 2's spells the allowed text."""
    tokenizer = Tokenizer(of_characters())
    pieces, begun = tokenizer.words(range(tokenizer.vocab_size)), tokenizer.encode("w")
    for text in ("isis", "is is"):
        table = grammar.lift_to_tokens(
            tabulate({"{t}": [(*text, "<eos>")]}, "{t}", CHARACTERS), CHARACTERS, pieces
        )
        ways: list[tuple[int, list[int]]] = [(0, [])]
        while ways:
            state, ids = ways.pop()
            may = np.flatnonzero(table[state] != NONE).tolist()
            ways += [(table[state, i], [*ids, i]) for i in may]
            assert may or tokenizer.decode([*begun, *ids]) == "w" + text


@given(seeds, st.booleans())
@settings(max_examples=30)
def test_constrained_text_is_valid_and_cached_correctly(seed: int, jump: bool) -> None:
    for sampling in (Sampling(), Sampling(2.0, seed=seed)):
        cache, plain = new_cache(), new_cache()
        output, chosen = decoding.generate_constrained(
            MODEL, PROMPT, TABLE, make_chooser(sampling, 19), cache, jump
        )
        assert whole(TABLE, output)
    prefill(MODEL, (PROMPT + output)[: cache.length], plain)
    assert torch.allclose(cache.k, plain.k)
    assert torch.allclose(cache.v, plain.v)
    states = [0, *states_after(TABLE, 0, output)]
    free = [n for n in range(len(output)) if (TABLE[states[n]] != NONE).sum() > 1]
    assert chosen == (free if jump else [*range(len(output))])


@pytest.mark.parametrize("eos_ids", [(), (0,), (4,)], ids=["no end id", "the end's", "one in the middle"])
def test_only_the_grammar_ends_a_text(eos_ids: tuple[int, ...]) -> None:
    """Whatever eos_ids the config has."""
    model = tiny(seed=2, dtype=torch.float64, max_seq_len=200, eos_ids=eos_ids)
    table = tabulate({"{all}": [tuple("4567"), tuple("4568")]}, "{all}", [str(i) for i in range(19)])
    for jump in (False, True):
        cache = StaticCache(model.config, dtype=torch.float64)
        ids, _ = decoding.generate_constrained(model, PROMPT, table, greedy, cache, jump)
        assert (whole(table, ids), len(ids)) == (True, 4)
    with pytest.raises(ValueError, match="expected an empty one"):
        decoding.generate_constrained(model, PROMPT, table, greedy, cache)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"{a}": [("x",)]}, "'x' is in the grammar, but not in the vocabulary of 2 words"),
        ({"{a}": [("u", "{a}")]}, "may never end"),
        ({"{a}": [("u", "{b}"), ("v",)], "{b}": [("u", "{b}")]}, "may never end"),
        ({"{a}": [("u",), ("u", "v")]}, "may end where 'v' may also follow"),
        ({"{a}": [("u", "{a}", "v"), ("v",)]}, "over 2000 states"),
    ],
)
def test_invalid_grammar_is_refused(rules: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tabulate(rules, "{a}", ["u", "v"])


def test_endless_forced_words_are_refused() -> None:
    """As when the tokens of `lift_to_tokens` lack the end."""
    circle = np.full((2, 19), NONE)
    circle[[0, 1], [5, 6]] = 1, 0
    for write in (
        lambda: forced_words(circle, 0),
        lambda: decoding.generate_constrained(MODEL, PROMPT, circle, greedy, new_cache()),
    ):
        with pytest.raises(ValueError, match=r"forced words \[5, 6\] never end"):
            write()


def test_table_of_another_vocabulary_is_refused() -> None:
    """Even if all words are forced, and no logits are masked."""
    table, cache = tabulate({"{a}": [("1", "0")]}, "{a}", ["0", "1"]), new_cache()
    with pytest.raises(ValueError, match="the table has 2 words; expected the model's 19"):
        decoding.generate_constrained(MODEL, PROMPT, table, greedy, cache)
    assert not cache.length
