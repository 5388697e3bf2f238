"""An explorer: how long must a decode step take on a card, and what bounds it?"""

from __future__ import annotations

from typing import Any

from helpers.cost.bytes import read_by_step
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import Work, bound_by, seconds_at_least
from helpers.explorers.explorer import Explorer, Grid, Line, knob, pick
from helpers.explorers.users import BITS, sizes

DENSE = ("SmolLM2-135M", "Llama-2-7B", "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B")
TOKENS = [1, 100, 500, 1000, 2000, 8000, 32_000, 128_000]
USERS = (1, 2, 4, 8, 16, 32, 64, 128, 296, 512, 1024)


def work_of_step(model: str, bits: float, tokens: int, users: int) -> tuple[Work, int]:
    """Return the work of one decode step of all users, and how many of its bytes are those of rows."""
    chosen = MODELS[model]
    read = read_by_step(chosen, tokens, users=users, weight_bytes=bits, row_bytes=bits)
    pairs = 4 * tokens * chosen.n_layers * chosen.n_heads * chosen.head_dim
    return Work(users * (2 * chosen.n_read + pairs), sum(read.values())), read["rows"]


class StepOnCard(Explorer):
    """The least that a decode step can take on a card: bytes over bandwidth, operations over the peak."""

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

    def grid(self, card: str, **settings: Any) -> Grid:
        work, rows = work_of_step(**settings)
        chosen = CARDS[card]
        seconds = {
            "to read the weights": (work.nbytes - rows) / chosen.bytes_per_second,
            "to read the rows": rows / chosen.bytes_per_second,
            "to do the arithmetic": work.operations / chosen.flops_per_second,
        }
        bars = [((one / max(seconds.values()), "work"),) for one in seconds.values()]
        told = (
            "Weights and rows are read one after the other, the arithmetic is done beside it, as fast as on "
            "16-bit numbers. Starting operators is left out."
        )
        numbers = [f"{1000 * one:,.3g} ms" for one in seconds.values()]
        return Grid([*map(Line, seconds, bars, numbers)], told)

    def say(self, card: str, **settings: Any) -> str:
        work, _ = work_of_step(**settings)
        chosen, users = CARDS[card], settings["users"]
        seconds = seconds_at_least(work, chosen)
        each = f", {users / seconds:,.0f} of all users together" if users > 1 else ""
        room = "" if fits_on(card, **settings) else f" Weights and rows do not fit on one {card}."
        return (
            f"At least {1000 * seconds:,.3g} ms a step, {1 / seconds:,.0f} tokens a second{each}; bound by "
            f"the {bound_by(work, chosen)}.{room}"
        )


def fits_on(card: str, model: str, bits: float, tokens: int, users: int) -> bool:
    """Whether the weights and the rows of all users have room on the card."""
    weights, each = sizes(model, tokens, bits, bits)
    return weights + users * each <= CARDS[card].memory_nbytes
