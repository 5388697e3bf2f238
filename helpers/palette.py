"""Every colour of pictures and views: one meaning each through the whole series, in a light and a dark form.

They stand in the stepper's `view.json`, where its JavaScript reads them.
"""

from __future__ import annotations

import json
from pathlib import Path

_VIEW = json.loads((Path(__file__).parent / "stepper" / "view.json").read_text(encoding="utf-8"))
_NAMES = {"bg": "paper", "q": "query", "k": "key", "v": "value", "gen": "generated"}
_NAMES |= {"qf": "query fill", "kf": "key fill", "vf": "value fill", "gf": "generated fill"}

PALETTE: dict[str, tuple[str, str]] = {
    _NAMES.get(short, short): (light, _VIEW["palette"]["dark"][short])
    for short, light in _VIEW["palette"]["light"].items()
}
