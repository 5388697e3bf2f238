"""The shipped model in NumPy, correct and broken caches for it, and the exercises of notebook 05.

This module runs the model without PyTorch. The model's cache is a subclass of the toy's cache. It differs
only in the number of layers and in the shape of the KV entries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load_file

from helpers import toy
from helpers.check.exercise import MAX_SECONDS, Case, Exercise
from helpers.check.reader import TimeLimitError, time_limit
from helpers.check.result import format_value
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.tables import Table
from helpers.drawing.words import SMALL, join_words, shorten
from helpers.sampling import Sampling, make_chooser, softmax

PROMPT = "Mia writes from Oslo. Monday is sunny in Oslo. Mia swam in the lake. Today weather is so nice."
OLD_TEXT = "Today weather is so nice. Emma writes from Cairo. Emma swam in the lake."
NEW_TEXT = "Today weather is so nice. Mia writes from Oslo. Mia swam in the lake."
WEIGHTS_FOLDER = Path(__file__).parents[1] / "weights"
N_LAYERS, EOS = 4, "<eos>"


class Weights(NamedTuple):
    """The weights and the vocabulary of the shipped model.

    Attributes:
        layers: for each layer, its matrices and norm weights by name. A matrix has one row per input channel
            and one column per output channel.
        embed_tokens: the embedding, of shape (V, 128). It is also the LM head.
        norm: the weight of the final norm, of shape (128,).
        words: the words of the vocabulary, in the order of their ids.
    """

    layers: list[dict[str, np.ndarray]]
    embed_tokens: np.ndarray
    norm: np.ndarray
    words: list[str]


@cache
def load_weights() -> Weights:
    """Load the weights and the vocabulary of the shipped model from WEIGHTS_FOLDER."""
    w = load_file(WEIGHTS_FOLDER / "model.safetensors")
    words = json.loads((WEIGHTS_FOLDER / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    starts = [f"model.layers.{layer}." for layer in range(N_LAYERS)]
    layers = [{name[15:-7]: w[name].T.copy() for name in w if name.startswith(start)} for start in starts]
    return Weights(layers, w["model.embed_tokens.weight"], w["model.norm.weight"], [*words])


def split_words(text: str) -> list[str]:
    """Split a text into the model's tokens, which are words and full stops."""
    return re.findall(r"[^\s.]+|\.", text)


def norm(x: np.ndarray, weight: np.ndarray) -> Any:
    """Apply RMSNorm: divide each token's channels by their root mean square, then multiply by the weight."""
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Apply RoPE to the queries or keys of T tokens.

    Args:
        x: the queries or keys, of shape (heads, T, 32).
        positions: the positions of the tokens, of shape (T,), counted from 0.
    """
    angles = positions[:, None] * 10_000 ** (-np.arange(16) / 16)
    a, b, cos, sin = x[..., :16], x[..., 16:], np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def run_pass(words: Sequence[str], cache: toy.KVCache | None) -> np.ndarray:
    """Run T new words after the tokens in a cache. Return the logits after each new word, of shape (T, V).

    Args:
        words: the new words.
        cache: the cache, to which the KV entries of the new words are added. With None, an empty cache is
            used.
    """
    weights, T, cache = load_weights(), len(words), ModelCache() if cache is None else cache
    positions, mask = cache.positions(T) - 1, cache.mask(T)  # the model counts from 0
    x = weights.embed_tokens[[weights.words.index(word) for word in words]]  # (T, 128)
    for layer, part in enumerate(weights.layers):
        h = norm(x, part["input_layernorm"])
        q, k, v = ((h @ part[f"self_attn.{one}_proj"]).reshape(T, -1, 32).swapaxes(0, 1) for one in "qkv")
        new = rotate(k, positions).swapaxes(0, 1), v.swapaxes(0, 1)
        keys, values = cache.append(layer, *new)  # (S, 2, 32) each
        K, V = (one.repeat(2, 1).swapaxes(0, 1) for one in (keys, values))  # each serves two query heads
        scores = rotate(q, positions) @ K.swapaxes(1, 2) / 32**0.5  # (4, T, S)
        contexts = softmax(np.where(mask, scores, -np.inf)) @ V
        x = x + contexts.swapaxes(0, 1).reshape(T, 128) @ part["self_attn.o_proj"]
        h = norm(x, part["post_attention_layernorm"])
        gate, up = h @ part["mlp.gate_proj"], h @ part["mlp.up_proj"]
        x = x + (gate / (1 + np.exp(-gate)) * up) @ part["mlp.down_proj"]
    cache.advance(T)
    return np.asarray(norm(x, weights.norm) @ weights.embed_tokens.T)


def generate_reply(
    cache: toy.KVCache, *prompt_passes: Sequence[str], max_new_tokens: int = 29, seed: int = 12
) -> list[str]:
    """Process a prompt in one or more passes, then draw a reply word by word, with one pass per word.

    Args:
        cache: the cache. It may already contain KV entries.
        prompt_passes: one argument per pass of the prompt: the words that it processes.
        max_new_tokens: the maximum number of words in the reply.
        seed: the seed of the random draws.

    Returns:
        The drawn words. The last may be `<eos>`.
    """
    words, choose = load_weights().words, make_chooser(Sampling(1.0, seed=seed), len(load_weights().words))
    for new in prompt_passes:
        logits = run_pass(new, cache)
    reply: list[str] = []
    while True:
        reply.append(words[choose(logits[-1])])
        if len(reply) == max_new_tokens or reply[-1] == EOS:
            return reply
        logits = run_pass(reply[-1:], cache)


class ModelCache(toy.KVCache):
    """The toy's cache, adapted to the shipped model.

    It has four layers. In each, the keys and the values of S cached tokens have shape (S, 2, 32).
    """

    def __init__(self) -> None:
        super().__init__(N_LAYERS)
        self.k, self.v = ([np.zeros((0, 2, 32))] * N_LAYERS for _ in "kv")


class TopLeftMaskCache(ModelCache):
    def mask(self, T: int) -> np.ndarray:
        return np.tri(T, self.length + T, dtype=bool)


class FrozenPositionsCache(ModelCache):
    def positions(self, T: int) -> np.ndarray:
        return np.minimum(super().positions(T), 1 + len(split_words(PROMPT)))


class KeysAsValuesCache(ModelCache):
    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys, values = super().append(layer, k, v)
        return keys, keys if self.length else values


class FirstEntriesHiddenCache(ModelCache):
    def mask(self, T: int) -> np.ndarray:
        allowed = super().mask(T)
        allowed[:, : min(20, self.length)] = False
        return allowed


class FirstLayerForAllCache(ModelCache):
    def append(self, layer: int, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = super().append(layer, k, v)
        return (self.k[0], self.v[0]) if self.length else own


class ShiftedPositionsCache(ModelCache):
    def positions(self, T: int) -> np.ndarray:
        return super().positions(T) + (self.length > 0)


CORRECT_CACHE = "Kept right"
FROZEN_POSITIONS = "Positions: they stand still, and every new token stands right behind the prompt"
SHIFTED_POSITIONS = "Positions: that of every new token is one too high"
CACHE_CLASSES: dict[str, type[ModelCache]] = {
    CORRECT_CACHE: ModelCache,
    "Mask: aligned top left, so that a new token sees row 1 alone": TopLeftMaskCache,
    "Mask: new tokens no longer see the first 20 rows": FirstEntriesHiddenCache,
    "Rows: K is handed out where V was asked for": KeysAsValuesCache,
    "Rows: every layer gets those of layer 1": FirstLayerForAllCache,
    FROZEN_POSITIONS: FrozenPositionsCache,
    SHIFTED_POSITIONS: ShiftedPositionsCache,
}


@cache
def reply_with_each_cache() -> dict[str, list[str]]:
    """Return the model's reply to PROMPT with each cache in CACHE_CLASSES, by the cache's name.

    All replies are drawn with the same seed.
    """
    return {name: generate_reply(kind(), split_words(PROMPT)) for name, kind in CACHE_CLASSES.items()}


def first_difference_position(words: Sequence[str], expected: Sequence[str]) -> int | None:
    """Return the position, from 1, of the first word that differs from `expected`.

    If one list is longer than the other, its additional words count as different. If the lists are equal,
    return None.
    """
    pairs = zip_longest(words, expected)
    return next((n for n, (one, other) in enumerate(pairs, 1) if one != other), None)


def cache_differences_table(largest_difference: Callable[..., float]) -> Table:
    """Return a table that compares each cache in CACHE_CLASSES with a pass without a cache.

    Args:
        largest_difference: the function that the notebook defines. It takes `run_pass`, a cache, the prompt,
            and the right reply without its last word. It returns the largest difference between a logit
            computed with the cache and the same logit computed without it.

    Returns:
        One line per cache: the position, from 1, of the first wrong word in its reply, and the result of
        `largest_difference`.
    """
    right, lines = reply_with_each_cache()[CORRECT_CACHE], list[list[Any]]()
    for name, kind in CACHE_CLASSES.items():
        off = largest_difference(run_pass, kind(), split_words(PROMPT), right[:-1])
        lines.append(
            [
                first_difference_position(reply_with_each_cache()[name], right) or "none",
                off if off > 0.01 else f"{off:.0e}",
            ]
        )
    heads = ["first wrong word", "largest difference of a logit"]
    return Table(lines, [name.partition(",")[0] for name in CACHE_CLASSES], heads, corner="the cache")


class MarkedReply(NamedTuple):
    """The text of a reply, split into parts, and the part that first differs from the expected reply."""

    parts: list[
        str
    ]  # words with their full stops, up to `<eos>`; "…" is the last part if there is no `<eos>`
    wrong_part: int | None  # index, from 0, of the part with the first wrong word; None if all are right


def split_at_difference(words: Sequence[str], expected: Sequence[str]) -> MarkedReply:
    """Join each full stop to the word before it, and find the part with the reply's first wrong word."""
    shown, wrong, wrong_part = list[str](), first_difference_position(words, expected), None
    for n, word in enumerate(words, 1):
        if word == EOS:
            return MarkedReply(shown, wrong_part)
        if word == "." and shown:
            shown[-1] += word
        else:
            shown.append(word)
        if n == wrong:
            wrong_part = len(shown) - 1
    return MarkedReply([*shown, "…"], wrong_part)


class MarkedReplies:
    """Replies under their names. In each reply, the first word that differs from the right reply is marked.

    Args:
        by_name: maps each name to the words of a reply. The first reply is the right one.
    """

    def __init__(self, by_name: dict[str, list[str]]) -> None:
        right = next(iter(by_name.values()))
        self.parts_by_name = {name: split_at_difference(words, right) for name, words in by_name.items()}

    def format_all(self, reply_format: str, mark_format: str) -> str:
        """Return all replies as one string.

        Args:
            reply_format: format string for a reply, with one field for its name and one for its text.
            mark_format: format string for the marked word, with one field.
        """
        return "".join(
            reply_format.format(
                name,
                " ".join(mark_format.format(word) if n == wrong else word for n, word in enumerate(words)),
            )
            for name, (words, wrong) in self.parts_by_name.items()
        )

    def __repr__(self) -> str:
        return self.format_all("{}: {}\n", "[{}]").rstrip()

    def _repr_html_(self) -> str:
        block = '<div style="margin: 0.7em 0; max-width: 60em"><small>{}</small><br>{}</div>'
        return self.format_all(block, "<mark><b>{}</b></mark>")


def marked_replies_with_each_cache() -> MarkedReplies:
    """Return the replies with the seven caches in CACHE_CLASSES, the first wrong word in each marked."""
    return MarkedReplies(reply_with_each_cache())


def chunk_mask(cached_words: Sequence[str], new_words: Sequence[str]) -> Picture:
    """Draw which tokens each new token of a pass sees, with one line per new token and one column per token.

    Args:
        cached_words: the words whose KV entries are in the cache.
        new_words: the words that the next pass processes.
    """
    words, T = [*cached_words, *new_words], len(new_words)
    allowed = causal_mask(T, len(words))

    def draw(sheet: Sheet) -> None:
        left, row, top = 70.0, 34.0, 76.0
        cell = min(64.0, (sheet.width - left - 10) / len(words))
        middle = left + cell * len(cached_words) / 2, left + cell * (len(cached_words) + T / 2)
        for x, name in zip(middle, ("rows stored", "new rows"), strict=True):
            sheet.note(x, 16, name, at="center")
        for j, word in enumerate(words):
            sheet.note(left + cell * (j + 0.5), 42, shorten(word, cell, SMALL), at="center", colour="ink")
            sheet.note(left + cell * (j + 0.5), top - 14, str(j + 1), at="center")
        for i, word in enumerate(new_words):
            sheet.text(left - 10, top + row * (i + 0.5), word, at="right", colour="query", bold=True)
        for (i, j), yes in np.ndenumerate(allowed):
            fill, edge = ("query fill", "query") if yes else ("panel", "line")
            x, y = left + cell * j + 1, top + row * i + 1
            sheet.box(x, y, cell - 2, row - 2, fill=fill, edge=edge, radius=3)
            sheet.note(x + cell / 2 - 1, y + row / 2 - 1, "yes" if yes else "·", at="center", colour="ink")

    seen = (f"{word} sees {join_words([w for w, yes in zip(words, line, strict=True) if yes])}"
            for word, line in zip(new_words, allowed, strict=True))  # fmt: skip
    return Picture(
        draw, f"{join_words(new_words)} come behind {join_words(cached_words)}: {'; '.join(seen)}."
    )


def reply_reusing_entries(n_reused: int) -> list[str]:
    """Return a reply to NEW_TEXT that reuses the first `n_reused` KV entries of OLD_TEXT.

    The last word of NEW_TEXT is always processed, even if `n_reused` includes it.
    """
    rows, new = ModelCache(), split_words(NEW_TEXT)
    run_pass(split_words(OLD_TEXT), rows)
    rows.truncate(min(n_reused, len(new) - 1))
    return generate_reply(rows, new[rows.length :], max_new_tokens=16, seed=6)


def replies_reusing_entries(reader_function: Callable[..., Any]) -> MarkedReplies:
    """Return replies to NEW_TEXT, each of which reuses a different number of OLD_TEXT's KV entries.

    The first reply reuses the KV entries of the common prefix, and the second those at all positions of
    NEW_TEXT but the last. The third reuses as many as the reader's function returns.

    Args:
        reader_function: the reader's `reusable`. If the exercise has not been solved yet, there is no third
            reply. If the function raises an error or takes too long, the third reply is empty.
    """
    old, new = split_words(OLD_TEXT), split_words(NEW_TEXT)
    right, most = reusable_prefix_length(old, new), len(new) - 1
    drawn = {
        f"{right} rows used again: the shared prefix": reply_reusing_entries(right),
        f"{most} rows used again: all but the last": reply_reusing_entries(most),
    }
    if reusable(reader_function).state == "not solved yet":
        return MarkedReplies(drawn)
    try:
        with time_limit(MAX_SECONDS):
            return MarkedReplies(drawn | {"With yours": reply_reusing_entries(reader_function(old, new))})
    except (Exception, TimeLimitError) as error:  # the check says what is wrong with it
        name = f"With yours, {type(error).__name__}: see the check above"
        return MarkedReplies(drawn | {name: []})


def common_prefix_length(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of tokens in the longest common prefix of two texts."""
    return [*(a == b for a, b in zip(old, new, strict=False)), False].index(False)


def reusable_prefix_length(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many KV entries of the old text can be reused for the new text.

    The last token of the new text is always processed, because its logits are needed for the next token.
    """
    return common_prefix_length(old, new[:-1])


SENTENCE, SHORTER_LIST_HINT = "Today weather is so", "one list may be shorter than the other, or empty."
ONLY_A_PREFIX = "only a common prefix is reusable: after the first difference, rows carry another beginning."
TEXT_PAIRS = [
    *[(SENTENCE, f"{SENTENCE} nice"), (SENTENCE, f"Oslo {SENTENCE}"), (SENTENCE, "Today weather was so")],
    *[(SENTENCE, "Today weather as so"), (SENTENCE, "so is weather Today"), ("so so nice", "so so so nice")],
    *[(SENTENCE, "Today weather island"), (SENTENCE, "Today weather"), (SENTENCE, SENTENCE), ("", SENTENCE)],
]
reusable = Exercise(
    name="reusable",
    todo="let reusable return how many tokens of the old text keep their rows for the new one.",
    cases=[
        Case((old.split(), new.split()), f"reusable for {old or 'no tokens'} → {new}", SHORTER_LIST_HINT)
        for old, new in TEXT_PAIRS
    ],
    right_answer=reusable_prefix_length,
    wrong_answers=[
        "nothing is left to run: the last token of the new text has to run, for the logits of the next one.",
        common_prefix_length,
        f"common words were counted wherever they stand; {ONLY_A_PREFIX}",
        lambda old, new: len(set(old) & set(new)),
        lambda old, new: sum(word in new for word in old),
        f"words after the first difference were counted; {ONLY_A_PREFIX}",
        lambda old, new: sum(a == b for a, b in zip(old, new, strict=False)),
        "lengths were compared; a row can be kept if its token and all before it are the same.",
        lambda old, new: len(old),
        lambda old, new: min(len(old), len(new)),
    ],
    success="4 tokens keep their rows when `nice` follows, 3 when the text stays, 0 when Oslo comes first.",
)


def causal_mask(T: int, S: int, n_extra_keys: int = 0) -> np.ndarray:
    """Return the attention mask for the T newest of S tokens, of shape (T, S).

    It is True where a query (row) may attend to a key (column).

    Args:
        T: number of new tokens.
        S: number of all tokens.
        n_extra_keys: number of keys that each query sees in addition to the right ones. 0 is right.
    """
    return np.tri(T, S, S - T + n_extra_keys, dtype=bool)


def describe_mask_difference(got: np.ndarray, expected: np.ndarray) -> str:
    """Describe the first query for which a mask differs from the expected mask.

    Args:
        got, expected: the two masks, each of shape (T, S).
    """
    query = int((got != expected).any(axis=1).argmax())
    seen, wanted = (format_value(np.flatnonzero(mask[query]) + 1) for mask in (got, expected))
    return f"lets query {query + 1} of {len(got)} see keys {seen}; expected {wanted}"


MASK_SHAPES = [(2, 6), (1, 5), (4, 4), (3, 7), (1, 1)]  # T, S
mask = Exercise(
    name="mask",
    todo="let mask return (T, S), True where one of the T newest tokens may look at one of all S.",
    cases=MASK_SHAPES,
    right_answer=causal_mask,
    wrong_answers=[
        "aligned top-left: the T new tokens stand at the end of the S, so query 1 sees S - T + 1 keys.",
        lambda T, S: np.tri(T, S, dtype=bool),
        "no mask: a query sees tokens that come after it.",
        lambda T, S: np.ones((T, S), dtype=bool),
        "upside down: True is where the query may look.",
        lambda T, S: ~causal_mask(T, S),
        "shifted by one: a query sees itself too.",
        lambda T, S: causal_mask(T, S, -1),
    ],
    success="visible cells: 11 in mask(2, 6), 5 in mask(1, 5), 10 in mask(4, 4).",
    describe_difference=describe_mask_difference,
)
