"""The what-if view: readers change the toy's prompt, and see which cached KV entries become stale."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from helpers import toy
from helpers.stepper.view import View

PROMPT_WORDS = (*toy.PROMPT, "nice")
CACHED_PROMPT = {word: float(toy.NUMBERS[word]) for word in PROMPT_WORDS}  # the prompt that filled the cache
INITIAL_PROMPT = CACHED_PROMPT | {"weather": 8.0}  # the prompt that readers see at first


class WhatIf(View):
    """A view in which readers change the toy's prompt, and see stale KV entries and the predicted word."""

    view = "what_if"

    @property
    def data(self) -> str:
        """The toy's constants, and the prompt that filled the cache, as JSON."""
        constants = {
            "numbers": toy.NUMBERS,
            "vocabulary": toy.VOCABULARY,
            "queries": [*toy.QUERIES.values()],
            "sink": [score if np.isfinite(score) else None for score in toy.SINK.values()],
            "lm_head": toy.LM_HEAD.tolist(),
        }
        return json.dumps({"toy": constants, "before": _tokens(CACHED_PROMPT)})

    @property
    def options(self) -> dict[str, Any]:
        """The initial prompt."""
        return {"now": _tokens(INITIAL_PROMPT)}

    def __repr__(self) -> str:
        return f"WhatIf({len(CACHED_PROMPT)} tokens in the cache, {len(INITIAL_PROMPT)} in the prompt)"


def _tokens(prompt: dict[str, float]) -> list[dict[str, Any]]:
    return [{"word": word, "number": x} for word, x in prompt.items()]
