"""An explorer: do so many users of a model fit on a card?"""

from __future__ import annotations

from typing import Any

from helpers.cost.bytes import GIB, cache_nbytes, nbytes_of, users_that_fit
from helpers.cost.models import CARDS, MODELS
from helpers.explorers.explorer import Explorer, knob, pick
from helpers.tables import Table

BITS = {"4": 0.5, "8": 1, "16": 2, "32": 4}
TOKENS = [2**n for n in range(8, 21)]
USERS = (1, 2, 4, 8, 16, 32, 64, 65, 66, 128, 256, 512, 1024)


class UsersOnCards(Explorer):
    """Weights and the rows of all users against the memory of cards, by model, formats, tokens and users."""

    title = "Explorer: how many users fit on a card, by model, number formats, tokens and users"

    def knobs(self) -> dict[str, Any]:
        """Start with the prediction of notebook 09."""
        bits = {"options": list(BITS.items()), "value": 2}
        return {
            "model": pick("model", MODELS, "Llama-3.1-8B", "Dropdown"),
            "weight_bytes": knob("SelectionSlider", "bits, weights", **bits),
            "row_bytes": knob("SelectionSlider", "bits, rows", **bits),
            "tokens": pick("tokens each", TOKENS, 8192),
            "users": pick("users", USERS, 65),
        }

    def sizes(self, model: str, tokens: int, weight_bytes: float, row_bytes: float) -> tuple[int, int]:
        """Return the bytes of the weights, and of one user's rows."""
        chosen = MODELS[model]
        return nbytes_of(chosen.n_parameters, weight_bytes), cache_nbytes(chosen.layers, tokens, row_bytes)

    def draw(self, *, users: int, **settings: Any) -> str:
        weights, each = self.sizes(**settings)
        rows = "".join(_card(name, card.memory_nbytes, weights, each, users) for name, card in CARDS.items())
        key = ", ".join(
            f'<span class="bar {kind}" style="display:inline-block;width:12px;margin:0"></span> {name}'
            for kind, name in (("work", "weights"), ("after", "rows"))
        )
        return (
            '<div class="grid"><span class="soft">card</span><span></span>'
            f'<span class="soft number">users that fit</span>{rows}</div>'
            f'<p class="soft">{key}, in a frame as wide as the card, its GB taken as GiB (drivers show up '
            "to 2 GiB less). Bytes needed, nothing else: nothing for a pass, no rows laid out for later.</p>"
        )

    def say(self, *, users: int, **settings: Any) -> str:
        weights, each = self.sizes(**settings)
        longest = MODELS[settings["model"]].max_seq_len
        beyond = f" (It reads {longest:,} tokens at most.)" if settings["tokens"] > longest else ""
        return (
            f"Weights {gib(weights)}, rows {gib(each)} a user: {gib(weights + users * each)} for "
            f"{users:,} user{'s' if users > 1 else ''}.{beyond}"
        )

    def static_html(self) -> str:
        """The users that fit on each card for four models, 2-byte numbers, 8,192 tokens."""
        names = ("Llama-2-7B", "Llama-3.1-8B", "Gemma-3-27B", "Llama-3.1-70B")
        sizes = [self.sizes(name, 8192, 2, 2) for name in names]
        memories = {name: card.memory_nbytes for name, card in CARDS.items()}
        rows = [
            [
                gib(weights),
                gib(each),
                *(users_that_fit(memory, weights, each) for memory in memories.values()),
            ]
            for weights, each in sizes
        ]
        columns = [
            "weights",
            "rows a user",
            *(f"{name}, {memory // GIB} GiB" for name, memory in memories.items()),
        ]
        return (
            "<p>Users that fit, 8,192 tokens each, 2-byte numbers, a card's GB taken as GiB.</p>"
            + Table(rows, names, columns, corner="model")._repr_html_()
        )


def _card(name: str, memory: int, weights: int, each: int, users: int) -> str:
    """A card as a frame, filled by weights and then rows as far as they go, and the users that fit."""
    fit = users_that_fit(memory, weights, each)
    verdict = f"<b>{fit:,}</b>" if fit >= users else f"{fit:,}: too few"
    shares = [min(1.0, weights / memory), min(1.0, (weights + users * each) / memory)]
    widths = [100 * shares[0], 100 * (shares[1] - shares[0])]
    parts = "".join(
        f'<div class="bar {kind}" style="width:{width:.2f}%;margin:0"></div>'
        for kind, width in zip(("work", "after"), widths, strict=True)
    )
    frame = f'<div class="bar before" style="height:13px;display:flex;padding:1px">{parts}</div>'
    return (
        f'<span>{name}, {memory // GIB} GiB</span><span aria-hidden="true">{frame}</span>'
        f'<span class="number">{verdict}</span>'
    )


def gib(nbytes: float) -> str:
    """Write bytes as GiB, or as MiB where they are few."""
    return f"{nbytes / GIB:,.1f} GiB" if nbytes >= GIB else f"{nbytes / 2**20:,.1f} MiB"
