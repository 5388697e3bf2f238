"""The live view: the reader presses Enter, and the shipped model writes in the page."""

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
# The head of the shipped model that finds names and cities, from 0. A test checks what it finds.
NAME_HEAD = {"layer": 0, "head": 2}


class Live(View):
    """A text box with the beginning of a diary, which the series' own model continues in the page.

    Args:
        published: a GGUF file in the page's folder, which readers can load with a button.
    """

    view = "live"
    file = Path(weights.__file__).with_name("model.f16.safetensors")

    def __init__(self, published: Path | None = None) -> None:
        self.published = published and {"file": published.name, "bytes": published.stat().st_size}

    @property
    def data(self) -> str:
        """The model's word classes, heads and sizes, and models and cards to compare it with, as JSON."""
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
        """How many numbers the file has after its header. Each takes 16 bits."""
        with self.file.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        return (self.file.stat().st_size - 8 - header) // 2

    @property
    def options(self) -> dict[str, Any]:
        """The initial text and seed, and the model that can be downloaded, if any."""
        fetched = {"published": self.published} if self.published else {}
        return {"text": PROMPT, "seed": SEED, **fetched}

    def __repr__(self) -> str:
        words = len(re.findall(r"\.|[^\s.]+", PROMPT))
        return f"Live({words} tokens, seed {SEED})"
