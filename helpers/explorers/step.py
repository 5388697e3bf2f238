"""An explorer: how long must a decode step take on a card, and what bounds it?"""

from __future__ import annotations

from typing import Any

from helpers.cost.models import CARDS, MODELS
from helpers.cost.step import StepTime, step_time
from helpers.explorers.explorer import Explorer, Grid, Line, knob, pick
from helpers.explorers.users import BITS, sizes

DENSE = ("SmolLM2-135M", "Llama-2-7B", "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B")
TOKENS = [1, 100, 500, 1000, 2000, 8000, 32_000, 128_000]
USERS = (1, 2, 4, 8, 16, 32, 64, 128, 296, 512, 1024)


def time_of_step(card: str, model: str, bits: float, tokens: int, users: int) -> StepTime:
    """Return the lower bound of a decode step; bits are bytes of a number."""
    return step_time(MODELS[model], CARDS[card], tokens, users, weight_bits=8 * bits, row_bits=8 * bits)


class StepOnCard(Explorer):
    """The lower bound of a decode step on a card, by `step_time`."""

    title = "Explorer: a decode step on a card, by model, number format, tokens and users"

    def knobs(self) -> dict[str, Any]:
        """Start with 64 users, as the table above it in notebook 12 does."""
        return {
            "card": pick("card", CARDS, "H100", "Dropdown"),
            "model": pick("model", DENSE, "Llama-3.1-8B", "Dropdown"),
            "bits": knob("SelectionSlider", "bits a number", options=list(BITS.items()), value=2),
            "tokens": pick("tokens each", TOKENS, 500),
            "users": pick("users", USERS, 64),
        }

    def grid(self, **settings: Any) -> Grid:
        time = time_of_step(**settings)
        seconds = {
            "to read the weights": time.weights,
            "to read the rows": time.rows,
            "to compute": time.products + time.attention,
        }
        bars = [((one / max(seconds.values()), "work"),) for one in seconds.values()]
        message = (
            "Rows are read, then weights, and the card computes beside that, as fast as on 16-bit numbers. "
            "Launch overhead is left out."
        )
        numbers = [f"{1000 * one:,.3g} ms" for one in seconds.values()]
        return Grid([*map(Line, seconds, bars, numbers)], message)

    def say(self, card: str, **settings: Any) -> str:
        time, users = time_of_step(card, **settings), settings["users"]
        each = f", {time.throughput:,.0f} of all users together" if users > 1 else ""
        room = "" if fits_on(card, **settings) else f" Weights and rows do not fit on one {card}."
        return (
            f"At least {1000 * time.total:,.3g} ms a step, {time.per_user:,.0f} tokens a second{each}; "
            f"{time.bound}.{room}"
        )


def fits_on(card: str, model: str, bits: float, tokens: int, users: int) -> bool:
    """Whether the weights and the rows of all users have room on the card."""
    weights, each = sizes(model, tokens, bits, bits)
    return weights + users * each <= CARDS[card].memory_nbytes
