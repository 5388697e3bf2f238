"""The live view: the reader presses Enter, and the shipped model generates text in the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from helpers import corpus, weights
from helpers.stepper.format import VIEW
from helpers.stepper.machines import models_and_cards
from helpers.stepper.view import View

PROMPT = "Mia writes from Oslo. Monday is sunny in Oslo. Mia swam in the lake. Today weather is so nice."
SEED = 12
LIVE: dict[str, Any] = VIEW["live"]
# The layer and head, from 0, with which the shipped model finds names and cities. A test checks them.
NAME_HEAD = {"layer": 0, "head": 2}


class Live(View):
    """A text box with a prompt, the beginning of a diary, which the shipped model continues in the page.

    Args:
        published: the path of a GGUF file that is in the same folder as the page. Readers can load this
            model with a button.
    """

    view = "live"
    file = Path(weights.__file__).with_name("model.f16.safetensors")

    def __init__(self, published: Path | None = None) -> None:
        self.published = published and {"file": published.name, "bytes": published.stat().st_size}

    @property
    def data(self) -> str:
        """What the view needs besides the weights, as JSON.

        These are the word classes of the vocabulary, the head that finds names, the model's size in
        parameters and bytes, and the models and the card to compare the model with.
        """
        kinds = [corpus.NAMES, corpus.CITIES, *({*words} for words in corpus.BLANKS.values())]
        shown = {
            "kinds": [sorted(kind) for kind in kinds],
            "known": len(set(corpus.vocabulary()) - {corpus.EOS, "."}),
            "finder": NAME_HEAD,
            "until": corpus.SIGNATURE.split()[1],
            "other": "Emma",
            "temperature": 1.0,
            "parameters": self.parameters,
            "bytes": self.file.stat().st_size,
            "compared": [one for one in models_and_cards()["models"] if one["name"] in LIVE["compared"]],
            "card": next(one for one in models_and_cards()["cards"] if one["name"] == LIVE["card"]),
        }
        return json.dumps(shown)

    @property
    def parameters(self) -> int:
        """The number of parameters in the weights file. After the header, each parameter takes 16 bits."""
        with self.file.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        return (self.file.stat().st_size - 8 - header) // 2

    @property
    def options(self) -> dict[str, Any]:
        """The initial prompt and seed, and the published model that readers can load, if any."""
        fetched = {"published": self.published} if self.published else {}
        return {"text": PROMPT, "seed": SEED, **fetched}

    def __repr__(self) -> str:
        words = len(re.findall(r"\.|[^\s.]+", PROMPT))
        return f"Live({words} tokens, seed {SEED})"
