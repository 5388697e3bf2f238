"""What a cache has left of a text, what a head looks at there, and what the model says then."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from torch import Tensor

from helpers.model.cache import Cache
from helpers.model.config import ModelConfig
from helpers.model.generate import generate, prefill
from helpers.model.shipped import FINDS_NAMES
from helpers.model.transformer import Transformer
from helpers.recording.model import as_array, cores_of
from helpers.recording.recorder import attention_weights
from helpers.tokenizer import Tokenizer


class Kept(NamedTuple):
    """What is left of a text: {place of a row, from 0: weight that the newest token gives it}; the reply."""

    weights: dict[int, float]
    says: str


def kept(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    make_cache: Callable[[ModelConfig], Cache],
    n: int = 3,
    at: tuple[int, int] = FINDS_NAMES,
) -> Kept:
    """Run a text into an empty cache, then n words more; `at`: whose weights, layer and head from 0."""
    ids, cache, (layer, head) = tokenizer.encode(text), make_cache(model.config), at
    core, given = cores_of(model)[layer], list[Tensor]()
    with core.register_forward_pre_hook(lambda core, taken: given.extend(taken)):
        prefill(model, ids, cache)
    q, k, _, mask = map(as_array, given)
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    weights = attention_weights(q @ k.swapaxes(-1, -2) * core.scale, mask)[0, head, -1]
    output = generate(model, ids, n, cache=make_cache(model.config))
    return Kept({place: float(weights[place]) for place in cache.kept()}, tokenizer.decode([*output]))
