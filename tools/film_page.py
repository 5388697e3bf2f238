"""The captions of the silent film, and the page that shows the film. film.py makes the film."""

from __future__ import annotations

import base64
from html import escape

from helpers.stepper.page import Section
from tools.book.build import BookPage
from tools.launch import ROOT

FOLDER = ROOT / ".github" / "film"
FILMS = [FOLDER / "film.webm", FOLDER / "film.mp4"]
POSTER = ROOT / "notebooks" / "pictures" / "film.png"  # the first frame
# Each caption explains one event. Its numbers must also appear in its frames; film.py checks this.
CAPTIONS = (
    "You press Enter. A pause; then words drip onto the screen. Why the pause, why the drip?",
    "The pause is prefill: all 23 tokens of the text run in one pass.",
    "Each leaves a row, its K and its V, and the KV cache keeps it.",
    "The drip is decode: a pass runs one token, the newest, which looks at the kept rows.",
    "28 tokens are out; 50 were processed, 23 of the text and 27 new ones. The last did not run.",
    "Now the same 28 tokens twice, on one clock. With the cache, a pass of decode runs one token; "
    "without it, the whole text again.",
    "The words are the same. With the cache 50 tokens were processed, without it 1,022.",
    "Kept rows serve another text as far as both begin alike. This toy’s cache was filled with five words.",
    "Now weather carries 8, not 20. In layer 1, where V comes from its own token alone, one row goes stale.",
    "In layer 2 four rows of V do: each was made from a context that had seen the old text.",
    "Today stands before the change: its rows may be kept. The other 4 tokens must run again.",
)


def caption_seconds(caption: str) -> float:
    """Return the number of seconds for which a caption is shown, which grows with its number of words."""
    return 2.5 + 0.3 * len(caption.split())


FILM_SECONDS = sum(map(caption_seconds, CAPTIONS))
DESCRIPTION = (
    f"{FILM_SECONDS:.0f} seconds without a voice: why the pause, why the drip, and when a kept row "
    "goes stale."
)


def film_page() -> BookPage:
    """Return the page with the film and a transcript of its captions."""
    poster = base64.b64encode(POSTER.read_bytes()).decode()
    sources = "".join(f'<source src="{file.name}" type="video/{file.suffix[1:]}">' for file in FILMS)
    lines = "".join(f"<li>{escape(caption, quote=False)}</li>" for caption in CAPTIONS)
    body = (
        '<video controls muted preload="none" width="1280" height="720" '
        f'poster="data:image/png;base64,{poster}">{sources}</video>'
        '<p class="turn">The film needs a wide screen: turn your phone sideways.</p>'
        f"<details open><summary>What it says</summary><ol>{lines}</ol></details>"
    )
    return BookPage("The film", [Section(DESCRIPTION, body=body)], DESCRIPTION)
