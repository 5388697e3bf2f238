"""Live: the reader presses Enter, and the shipped model writes in the page."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from helpers import corpus, weights
from helpers.drawing.canvas import Sheet
from helpers.drawing.still import Still
from helpers.recording.diary import load_diary
from helpers.stepper.format import VIEW, fill
from helpers.stepper.machines import machines
from helpers.stepper.race import EDGE, Race, running
from helpers.stepper.view import View

PROMPT = "Mia writes from Oslo. Monday is sunny in Oslo. Mia swam in the lake. Today weather is so nice."
SEED = 12
LIVE: dict[str, Any] = VIEW["live"]
# The head of the shipped model that finds names and cities, from 0; a test looks at what it finds.
FINDER = {"layer": 0, "head": 2}


class Live(View):
    """A text box with the beginning of a diary, which the series' own model continues in the page.

    Args:
        published: a GGUF file in the page's folder, which a button loads.
    """

    view = "live"
    file = Path(weights.__file__).with_name("model.f16.safetensors")

    def __init__(self, published: Path | None = None) -> None:
        self.published = published and {"file": published.name, "bytes": published.stat().st_size}

    @property
    def data(self) -> str:
        """Data about the model (word classes, heads, sizes), and other models and cards to compare with."""
        kinds = [corpus.NAMES, corpus.CITIES, *({*words} for words in corpus.SLOTS.values())]
        message = {
            "kinds": [sorted(kind) for kind in kinds],
            "known": len(set(corpus.vocabulary()) - {corpus.EOS, "."}),
            "finder": FINDER,
            "until": corpus.SIGNATURE.split()[1],
            "other": "Emma",
            "temperature": 1.0,
            "parameters": self.parameters,
            "bytes": self.file.stat().st_size,
            "compared": [one for one in machines()["models"] if one["name"] in LIVE["compared"]],
            "card": next(one for one in machines()["cards"] if one["name"] == LIVE["card"]),
        }
        return json.dumps(message)

    @property
    def parameters(self) -> int:
        """Numbers in the file, of 16 bits each; before them stand the header's length and the header."""
        with self.file.open("rb") as file:
            header = int.from_bytes(file.read(8), "little")
        return (self.file.stat().st_size - 8 - header) // 2

    @property
    def options(self) -> dict[str, Any]:
        """The initial text and seed, and what can be downloaded."""
        fetched = {"published": self.published} if self.published else {}
        return {"text": PROMPT, "seed": SEED, **fetched}

    def still(self) -> Still:
        """Return a recorded run, Mia's: the text, the pause, the drip, and what the cache holds."""
        race = Race(load_diary())
        lane, _ = race.lanes.values()
        prompt = race.trace.sequences[0].prompt
        texts = [race.text_of(range(prompt)), race.text_of(lane.words_at(lane.end))]
        values = {"prompt": prompt, "words": len(lane.words), "rows": lane.end}
        sentence = fill(LIVE["still"], **values)
        draw = partial(_draw, texts=texts, prompt=prompt, rows=lane.end)
        return Still(draw, " ".join(texts), [sentence])

    def __repr__(self) -> str:
        words = len(re.findall(r"\.|[^\s.]+", PROMPT))
        return f"Live({words} tokens, seed {SEED})"


def _draw(sheet: Sheet, texts: list[str], prompt: int, rows: int) -> None:
    """The text in its box; a bar of tokens processed, the prompt's at once; the rows kept, K over V."""
    y = 30.0
    for text, colour in zip(texts, ("ink", "generated"), strict=True):
        y = running(sheet, text, sheet.width - 2 * EDGE, y, colour) + 24
    sheet.box(1, 6, sheet.width - 2, y - 10, edge="ink", line=1.6)
    unit = (sheet.width - 2 * EDGE) / rows
    x, y = EDGE + unit * prompt, y + 18
    sheet.note(EDGE, y, fill(LIVE["pause"], prompt=prompt))
    sheet.note(x, y, LIVE["drip"])
    sheet.box(EDGE, y + 12, x - EDGE - 1, 18, fill="ink", radius=0)
    for n in range(prompt, rows):
        sheet.box(EDGE + unit * n, y + 12, unit - 2, 18, fill="generated", radius=0)
    y += 54
    sheet.note(EDGE, y, f"{LIVE['cache']} {fill(LIVE['kept'], rows=rows)}")
    for n in range(rows):
        for kind, down in (("key", 12), ("value", 25)):
            sheet.box(EDGE + unit * n, y + down, unit - 2, 12, fill=f"{kind} fill", edge=kind, radius=0)
