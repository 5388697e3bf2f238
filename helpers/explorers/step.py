"""An explorer: how long must a decode step take on a card, and what bounds it?"""

from __future__ import annotations

from typing import Any

from helpers.cost.bytes import cache_nbytes, nbytes_of, read_by_step
from helpers.cost.models import CARDS, MODELS
from helpers.cost.roofline import Work, attention, bound_by, seconds_at_least
from helpers.explorers.explorer import Explorer, bar, knob, pick
from helpers.explorers.users import BITS
from helpers.tables import Table

DENSE = ("SmolLM2-135M", "Llama-2-7B", "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B")
TOKENS = [1, 100, 1000, 2000, 8000, 32_000, 128_000]
USERS = (1, 2, 4, 8, 16, 32, 64, 128, 296, 512, 1024)


def work_of_step(model: str, bits: float, tokens: int, users: int) -> tuple[Work, int]:
    """Return the work of one decode step of all users, and how many of its bytes are those of rows."""
    chosen = MODELS[model]
    read = read_by_step(chosen, tokens, users=users, weight_bytes=bits, row_bytes=bits)
    numbers = sum(read[part] for part in ("attention", "MLP", "norms", "readout")) / bits
    heads = chosen.n_heads, chosen.n_kv_heads, chosen.head_dim
    pairs = chosen.n_layers * attention(1, tokens, *heads, bits).operations
    return Work(users * (2 * numbers + pairs), sum(read.values())), read["rows"]


class StepOnCard(Explorer):
    """The least that a decode step can take on a card: bytes over bandwidth, operations over the peak."""

    title = "Explorer: a decode step on a card, by model, number format, tokens and users"

    def knobs(self) -> dict[str, Any]:
        """Start with the prediction of notebook 10."""
        return {
            "card": pick("card", CARDS, "H100", "Dropdown"),
            "model": pick("model", DENSE, "Llama-3.1-8B", "Dropdown"),
            "bits": knob("SelectionSlider", "bits a number", options=list(BITS.items()), value=2),
            "tokens": pick("tokens each", TOKENS, 100),
            "users": pick("users", USERS, 1),
        }

    def draw(self, card: str, **settings: Any) -> str:
        work, rows = work_of_step(**settings)
        chosen = CARDS[card]
        seconds = {
            "to read the weights": (work.nbytes - rows) / chosen.bytes_per_second,
            "to read the rows": rows / chosen.bytes_per_second,
            "to do the arithmetic": work.operations / chosen.flops_per_second,
        }
        most = max(seconds.values())
        bars = "".join(bar(name, one / most, f"{1000 * one:,.3g} ms") for name, one in seconds.items())
        return (
            f'<div class="grid">{bars}</div><p class="soft">Weights and rows are read one after the other, '
            "the arithmetic is done beside it, as fast as on 16-bit numbers. Starting operators is left out."
            "</p>"
        )

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

    def static_html(self) -> str:
        """The least time of a step of Llama-3.1-8B on each card, 16 bits, 2,000 tokens each."""

        def least(card: str, users: int) -> str:
            step = "Llama-3.1-8B", 2, 2000, users
            seconds = seconds_at_least(work_of_step(*step)[0], CARDS[card])
            return f"{1000 * seconds:.1f} ms" if fits_on(card, *step) else "no room"

        rows = [[least(card, users) for users in (1, 8, 64)] for card in CARDS]
        columns = ["1 user", "8 users", "64 users"]
        return (
            "<p>A decode step of Llama-3.1-8B at the least, 16 bits, 2,000 tokens each.</p>"
            + Table(rows, list(CARDS), columns, corner="card")._repr_html_()
        )


def fits_on(card: str, model: str, bits: float, tokens: int, users: int) -> bool:
    """Whether the weights and the rows of all users have room on the card."""
    chosen = MODELS[model]
    needed = nbytes_of(chosen.n_parameters, bits) + users * cache_nbytes(chosen.layers, tokens, bits)
    return needed <= CARDS[card].memory_nbytes
