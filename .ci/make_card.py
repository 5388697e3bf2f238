"""The card "prefill against decode", for one sheet of A4 or Letter paper; make_page.py writes it.

The table stands once, at the end of notebook 09; from there it comes.
"""

from __future__ import annotations

import re
from html import escape

import nbformat
from make_worksheet import ROOT, STYLE

NOTEBOOK = ROOT / "notebooks" / "09_pause_and_drip.ipynb"
FOUND = re.compile(
    r"^## (?P<heading>Prefill against decode.*)\n\n(?P<before>.+)\n\n(?P<table>(?:^\|.*\n)+)\n(?P<after>.+)$",
    re.M,
)
N = 5  # tokens in the drawing
CARD_STYLE = """
body { font-size: 11pt; }
.two { display: flex; gap: 14mm; margin: 5mm 0 3mm; }
.two figure { margin: 0; flex: 1; }
.two svg { display: block; width: 28mm; margin-bottom: 2mm; }
.card { width: 100%; margin: 3mm 0; }
.card :is(th, td) { padding: 1.6mm 2mm; text-align: left; vertical-align: top; }
.card tr { border-bottom: 0.3mm solid #8c959f; }
.card thead tr { border-bottom: 0.7mm solid #1b1f24; font-size: 13pt; }
.card tbody th { width: 42mm; }
@media screen and (max-width: 800px) {
  .two { gap: 5mm; }
  .card { display: table; font-size: 10.5pt; }
  .card :is(th, td) { padding: 2mm 1mm; }
  .card tbody th { width: 24mm; }
}
"""


def drawing(new: int) -> str:
    """A pass over the last `new` of N tokens: who looks at whom, and the rows that are there from before."""
    old = N - new
    pairs = [(query, key) for query in range(N) for key in range(query + 1)]
    ink = ["#d0d7de"] * old + ["#1b1f24"] * new
    dots = "".join(
        f'<circle cx="{10 * key + 5}" cy="{10 * query + 5}" r="3.6" fill="{ink[query]}"/>'
        for query, key in pairs
    )
    rings = "".join(
        f'<circle cx="{10 * n + 5}" cy="{10 * N + 9}" r="3" fill="none" stroke="#57606a" stroke-width="1.4"/>'
        for n in range(old)
    )
    counted = sum(query >= old for query, _ in pairs)
    sentence = f"{new} of {N} tokens processed: {counted} pairs; {old} rows from before"
    size = f"0 0 {10 * N} {10 * N + 14}"
    return f'<svg viewBox="{size}" role="img" aria-label="{sentence}">{dots}{rings}</svg>'


def inline(text: str) -> str:
    """Markdown within a line as HTML: emphasis only."""
    return re.sub(r"\*(.+?)\*", r"<em>\1</em>", escape(text.strip(), quote=False))


def parts() -> re.Match[str]:
    """The card in notebook 09.

    Raises:
        ValueError: it is not there.
    """
    book = nbformat.read(NOTEBOOK, as_version=4)
    text = "\n\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    if not (found := FOUND.search(text)):
        raise ValueError(f"{NOTEBOOK.name} has no table under a heading 'Prefill against decode'")
    return found


def card() -> str:
    """The whole page."""
    found = parts()
    head, _, *lines = ([inline(cell) for cell in row.split("|")[1:-1]] for row in found["table"].splitlines())
    rows = "".join(
        f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for name, *cells in lines
    )
    columns = "".join(f'<th scope="col">{name}</th>' for name in head)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Prefill against decode</title><style>{STYLE}{CARD_STYLE}</style></head><body>
<h1>{inline(found["heading"])}</h1>
<div class="two">
<figure>{drawing(N)}<figcaption><b>Prefill.</b> Every token of the prompt runs. A dot is a pair: the token of
its line looks at the token of its column.</figcaption></figure>
<figure>{drawing(1)}<figcaption><b>Decode step.</b> The newest token runs alone. A ring is a row that the KV
cache holds from before. Grey pairs are not scored again.</figcaption></figure>
</div>
<p>{inline(found["before"])}</p>
<table class="card"><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>
<p>{inline(found["after"])}</p>
<footer class="soft">Watch It Decode, notebook 09.</footer>
</body></html>
"""
