"""All colours of pictures and views. Each has one meaning in the whole series, and a light and a dark form.

Python and the views' JavaScript read the colours from `palette.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

PATH = Path(__file__).with_suffix(".json")
# Colours by theme, "light" and "dark"; "host" has the page's own variables, which take precedence.
THEMES: dict[str, dict[str, str]] = json.loads(PATH.read_text(encoding="utf-8"))
_NAMES = {"bg": "paper", "q": "query", "k": "key", "v": "value", "gen": "generated"}
_NAMES |= {"qf": "query fill", "kf": "key fill", "vf": "value fill", "gf": "generated fill"}

PALETTE: dict[str, tuple[str, str]] = {
    _NAMES.get(short, short): (light, THEMES["dark"][short]) for short, light in THEMES["light"].items()
}
