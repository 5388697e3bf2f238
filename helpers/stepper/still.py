"""Stills of interactive views, for readers without a kernel. A still is a picture and sentences.

The file name of a still is computed from the data and options of its view. Stills are taken by the command
`python -m tools notebooks`, which needs Chromium. Reading or running a notebook does not need Chromium.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from typing import Any

from helpers.stepper.format import HERE

FOLDER = HERE / "stills"


def _rounded(value: Any) -> Any:
    """Return JSON data with floats rounded to six digits, because later digits differ between machines."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [*map(_rounded, value)]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def still_name(data: str, options: dict[str, Any], file: bytes = b"") -> str:
    """Return the name of a view's still. It is a hash of everything that the view initially shows.

    If readers can choose among models and cards, the hash includes only the model and the card that are
    chosen initially.

    Args:
        data, options: the view's data, as JSON, and the view's options for the front end.
        file: the content of the file that the view runs.
    """
    made, told = json.loads(data), json.loads(json.dumps(options))
    for unseen in ("machines", "published"):
        told.pop(unseen, None)
    for names, name in (("models", "model"), ("cards", "card")):
        if names in made:
            made[names] = [one for one in made[names] if one["name"] == told["case"][name]]
    text = json.dumps(_rounded([made, told]), sort_keys=True)
    return hashlib.sha256(text.encode() + file).hexdigest()[:16]


@dataclass(frozen=True)
class Still:
    """A picture of an interactive view, and the content of the picture as text."""

    data: str  # the view's data and options; a test runs the view with them again and compares `words`
    options: dict[str, Any]
    alt: str  # the name of the view
    width: int  # CSS px
    words: list[str]  # the view's sentences
    seen: list[str]  # what the picture shows, as text
    png: bytes

    @classmethod
    def load(cls, name: str) -> Still | None:
        """Return the still called `name`, or None if it does not exist."""
        path = FOLDER / f"{name}.json"
        if not path.exists():
            return None
        kept = json.loads(path.read_text(encoding="utf-8"))
        return cls(**kept, png=path.with_suffix(".png").read_bytes())

    def save(self, name: str) -> None:
        """Write the picture as a PNG, and everything else next to it as JSON."""
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.png").write_bytes(self.png)
        kept = {name: value for name, value in vars(self).items() if name != "png"}
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")

    def caption_html(self) -> str:
        """Return the content below the picture: the sentences and the folded text alternative, as HTML."""
        words = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.words)
        fold = f"<summary>The picture in words</summary>{'<br>'.join(map(html.escape, self.seen))}"
        return f'{words}<details style="font-size:90%">{fold}</details>'

    def html(self) -> str:
        """Return the picture and the content below it, as HTML for a page without a kernel."""
        source = f"data:image/png;base64,{base64.b64encode(self.png).decode()}"
        return f'<img alt="{html.escape(self.alt)}" width="{self.width}" src="{source}">{self.caption_html()}'
