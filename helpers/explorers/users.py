"""An explorer: do so many users of a model fit on a card?"""

from __future__ import annotations

from typing import Any

from helpers.cost.layers import GIB, cache_nbytes, nbytes_of, users_that_fit
from helpers.cost.models import CARDS, MODELS
from helpers.explorers.explorer import Explorer, Grid, Line, knob, pick

BITS = {"4": 0.5, "8": 1, "16": 2, "32": 4}
TOKENS = [2**n for n in range(8, 21)]
USERS = (1, 2, 4, 8, 16, 32, 64, 65, 66, 128, 256, 512, 1024)


def sizes(model: str, tokens: int, weight_bytes: float, row_bytes: float) -> tuple[int, int]:
    """Return the bytes of the weights, and of one user's rows."""
    chosen = MODELS[model]
    return nbytes_of(chosen.n_parameters, weight_bytes), cache_nbytes(chosen.layers, tokens, row_bytes)


class UsersOnCards(Explorer):
    """Weights and the rows of all users against the memory of cards, by model, formats, tokens and users."""

    title = "Explorer: how many users fit on a card, by model, number formats, tokens and users"

    def knobs(self) -> dict[str, Any]:
        """Start with the prediction of notebook 11."""
        bits = {"options": list(BITS.items()), "value": 2}
        return {
            "model": pick("model", MODELS, "Llama-3.1-8B", "Dropdown"),
            "weight_bytes": knob("SelectionSlider", "bits, weights", **bits),
            "row_bytes": knob("SelectionSlider", "bits, rows", **bits),
            "tokens": pick("tokens each", TOKENS, 8192),
            "users": pick("users", USERS, 65),
        }

    def grid(self, *, users: int, **settings: Any) -> Grid:
        weights, each = sizes(**settings)
        cards = [_card(name, card.memory_nbytes, weights, each, users) for name, card in CARDS.items()]
        key = '<span class="bar key weights"></span> weights, then <span class="bar key rows"></span> rows'
        return Grid([*cards], f"{key}. Each frame is a card, to scale.", ("card", "", "users that fit"))

    def say(self, *, users: int, **settings: Any) -> str:
        weights, each = sizes(**settings)
        longest = MODELS[settings["model"]].max_seq_len
        beyond = f" (It reads {longest:,} tokens at most.)" if settings["tokens"] > longest else ""
        return (
            f"Weights {gib(weights)}, rows {gib(each)} a user: {gib(weights + users * each)} for "
            f"{users:,} user{'s' if users > 1 else ''}.{beyond}"
        )


def _card(name: str, memory: int, weights: int, each: int, users: int) -> Line:
    """A card as a frame, filled by weights and then rows as far as they go, and the users that fit."""
    fit = users_that_fit(memory, weights, each)
    verdict = f"<b>{fit:,}</b>" if fit >= users else f"{fit:,}: too few"
    first, both = min(1.0, weights / memory), min(1.0, (weights + users * each) / memory)
    bars = (first, "weights"), (both - first, "rows")
    frame = memory / max(card.memory_nbytes for card in CARDS.values())
    return Line(f"{name}, {memory // GIB} GiB", bars, verdict, "name", frame)


def gib(nbytes: float) -> str:
    """Write bytes as GiB, or as MiB where they are few."""
    return f"{nbytes / GIB:,.1f} GiB" if nbytes >= GIB else f"{nbytes / 2**20:,.1f} MiB"
