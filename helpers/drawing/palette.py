"""Every colour of pictures and views: one meaning each through the whole series, in a light and a dark form.

`palette.json` holds them for Python and for the JavaScript of the views.
"""

from __future__ import annotations

import json
from pathlib import Path

PATH = Path(__file__).with_suffix(".json")
# Colours by theme, "light" and "dark"; "host" has the page's own variables, which go before ours.
THEMES: dict[str, dict[str, str]] = json.loads(PATH.read_text(encoding="utf-8"))
_NAMES = {"bg": "paper", "q": "query", "k": "key", "v": "value", "gen": "generated"}
_NAMES |= {"qf": "query fill", "kf": "key fill", "vf": "value fill", "gf": "generated fill"}

PALETTE: dict[str, tuple[str, str]] = {
    _NAMES.get(short, short): (light, THEMES["dark"][short]) for short, light in THEMES["light"].items()
}
