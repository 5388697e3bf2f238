"""What a cache has left of a text, what a head looks at there, and what the model says then."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from helpers.model.cache import KVCache
from helpers.model.config import ModelConfig
from helpers.model.generate import prefill
from helpers.model.shipped import FINDS_NAMES
from helpers.model.transformer import Transformer
from helpers.recording.model import record_model
from helpers.tokenizer import Tokenizer


class Kept(NamedTuple):
    """What is left of a text: {place of a row, from 0: weight that the newest token gives it}; the reply."""

    weights: dict[int, float]
    says: str


def kept(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    make_cache: Callable[[ModelConfig], KVCache],
    n: int = 3,
    at: tuple[int, int] = FINDS_NAMES,
) -> Kept:
    """Run a text into an empty cache, then n words more; `at`: whose weights, layer and head from 0."""
    ids, cache = tokenizer.encode(text), make_cache(model.config)
    prefill(model, ids, cache)
    run = record_model(
        model, text, tokenizer, max_new=n, recorded=[at], cache=make_cache(model.config), training=False,
        uncached=False,
    )  # fmt: skip
    weights = run.attention_weights(len(ids) - 1, *at).tolist()
    output = [token.text for token in run.sequences[0].tokens[len(ids) :]]
    return Kept(dict(zip(cache.kept(), weights, strict=True)), " ".join(output))
