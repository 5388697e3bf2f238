"""The colours of all figures and views, for the light theme and for the dark theme.

Each colour has one meaning in the whole series. Both Python and the views' JavaScript read the colours from
`palette.json`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple


class LightAndDark(NamedTuple):
    """A colour in the light theme and in the dark theme, as "#rrggbb"."""

    light: str
    dark: str


PATH = Path(__file__).with_suffix(".json")
# Colours by theme, "light" and "dark"; "host" has the page's own variables, which take precedence.
THEMES: dict[str, dict[str, str]] = json.loads(PATH.read_text(encoding="utf-8"))
_NAMES = {"bg": "paper", "q": "query", "k": "key", "v": "value", "gen": "generated"}
_NAMES |= {"qf": "query fill", "kf": "key fill", "vf": "value fill", "gf": "generated fill"}

PALETTE: dict[str, LightAndDark] = {
    _NAMES.get(short, short): LightAndDark(light, THEMES["dark"][short])
    for short, light in THEMES["light"].items()
}
