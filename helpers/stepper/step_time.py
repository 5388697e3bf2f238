"""The view of the time of one step on a card, with settings that the reader can change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helpers.cost.config import model_of
from helpers.cost.models import CARDS, MODELS, PublishedModel
from helpers.cost.step import step_time
from helpers.drawing.words import require
from helpers.stepper.format import VIEW, fill_template
from helpers.stepper.machines import model_fields, models_and_cards
from helpers.stepper.view import View, check_one_of

TEXTS: dict[str, Any] = VIEW["step_time"]


class StepTime(View):
    """A view of a step on a card: the terms of its time, what bounds it, its throughput, how many users fit.

    The arguments are the initial settings, which readers can change.

    Args:
        model: any argument of `cost.model_of`, such as a name in `cost.models.MODELS`.
        card: a name in `cost.models.CARDS`.
        tokens: number of cached tokens per user.
        users: number of users in the step.
        new_tokens: number of new tokens per user: 1 in a decode step, more in a verification. All of them go
            through the LM head.
        weight_bits, kv_bits: bits per weight, and bits per value in the KV cache: 4, 8, 16 or 32.
        overlap, bandwidth_reached, compute_reached, cards, collective: as in `cost.step_time`.

    Raises:
        ValueError: the card is unknown, an argument is out of range, or `cost.model_of` rejects the model.
    """

    view = "step_time"

    def __init__(
        self,
        model: str | Path | dict[str, Any] | PublishedModel = "Llama-3.1-8B",
        card: str = "H100",
        tokens: int = 500,
        users: int = 64,
        *,
        new_tokens: int = 1,
        weight_bits: int = 16,
        kv_bits: int = 16,
        overlap: bool = False,
        bandwidth_reached: float = 1.0,
        compute_reached: float = 1.0,
        cards: int = 1,
        collective: float = 0.0,
    ) -> None:
        check_one_of("card", card, CARDS)
        check_one_of("weight_bits", weight_bits, TEXTS["formats"])
        check_one_of("kv_bits", kv_bits, TEXTS["formats"])
        check_one_of("overlap", overlap, [True, False])
        self.model = model_of(model)
        self.card = CARDS[card]
        reached = {"bandwidthReached": bandwidth_reached, "computeReached": compute_reached}
        self.settings: dict[str, Any] = {
            **{"tokens": tokens, "users": users, "newTokens": new_tokens, "cards": cards},
            **{"weightBits": weight_bits, "kvBits": kv_bits, "overlap": overlap},
            **{name: round(100 * share, 9) for name, share in reached.items()},
            "collective": round(1e6 * collective, 9),
        }
        more: dict[str, Any] = {"weight_bits": weight_bits, "kv_bits": kv_bits, "overlap": overlap}
        more |= {"bandwidth_reached": bandwidth_reached, "compute_reached": compute_reached}
        more |= {"new_tokens": new_tokens, "logits": None, "cards": cards, "collective": collective}
        self.step = step_time(self.model, self.card, tokens, users, **more)
        for name, field in TEXTS["fields"].items():
            least, most = field["least"], field["most"]
            values = {"name": field["name"], "got": self.settings[name], "least": least, "most": most}
            require(least <= self.settings[name] <= most, fill_template(TEXTS["range"], **values))

    @property
    def data(self) -> str:
        """The models and cards to choose from, as JSON."""
        offered = models_and_cards()
        if self.model not in MODELS.values():
            offered["models"].append(model_fields(self.model))
        return json.dumps(offered)

    @property
    def options(self) -> dict[str, Any]:
        """The initial settings: the model, the card, and the other arguments."""
        return {"case": {"model": self.model.name, "card": self.card.name, **self.settings}}

    def __repr__(self) -> str:
        users, tokens = (f"{self.settings[name]:,}" for name in ("users", "tokens"))
        return f"StepTime({self.model.name} on {self.card.name}, {users} users of {tokens} tokens)"
