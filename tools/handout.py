"""The table "Prefill against decode" from notebook 09, as part of the main page and as a printable card.

site.py writes the two pages. The card fits on a sheet of A4 or Letter paper.
"""

from __future__ import annotations

import re
from html import escape

import nbformat

from tools.launch import ROOT
from tools.worksheet import printable_page

NOTEBOOK = ROOT / "notebooks" / "09_pause_and_drip.ipynb"
SECTION = re.compile(
    r"^## (?P<heading>Prefill against decode.*)\n\n(?P<before>.+)\n\n(?P<table>(?:^\|.*\n)+)\n(?P<after>.+)$",
    re.M,
)
N = 5  # tokens in the drawing
CARD_STYLE = """
body { font-size: 11pt; }
.two { display: flex; gap: 14mm; margin: 5mm 0 3mm; }
.two figure { margin: 0; flex: 1; }
.two svg { display: block; width: 28mm; margin-bottom: 2mm; }
@media screen and (max-width: 800px) { .two { gap: 5mm; } }
"""
# On a phone, the name of a row is above its two cells, which then have half of the width each.
TABLE_STYLE = """
.phases { width: 100%; table-layout: fixed; margin: 12px 0; border-collapse: collapse; line-height: 1.35; }
.phases :is(th, td) { padding: 6px 12px 6px 0; text-align: left; vertical-align: top; }
.phases tr { border-bottom: 1px solid var(--line, #8c959f); }
.phases thead tr { border-bottom: 2px solid; font-size: 1.1em; }
.phases tbody th { font-weight: 400; color: var(--soft, #57606a); }
.phases thead td { width: 23%; }
@media screen and (max-width: 600px) {
  .phases, .phases :is(thead, tbody) { display: block; }
  .phases tr { display: grid; grid-template-columns: 1fr 1fr; column-gap: 14px; padding: 6px 0; }
  .phases :is(th, td) { padding: 0; }
  .phases tbody th { grid-column: 1 / -1; font-size: 14px; }
  .phases thead td { display: none; }
}
"""


def pass_svg(n_new: int) -> str:
    """Return an SVG of a forward pass that processes the last `n_new` of N tokens.

    Each query-key pair is a dot. The pairs of tokens that the pass does not process are grey. The KV entries
    that were cached before the pass are rings.
    """
    old = N - n_new
    pairs = [(query, key) for query in range(N) for key in range(query + 1)]
    ink = ["#d0d7de"] * old + ["#1b1f24"] * n_new
    dots = "".join(
        f'<circle cx="{10 * key + 5}" cy="{10 * query + 5}" r="3.6" fill="{ink[query]}"/>'
        for query, key in pairs
    )
    rings = "".join(
        f'<circle cx="{10 * n + 5}" cy="{10 * N + 9}" r="3" fill="none" stroke="#57606a" stroke-width="1.4"/>'
        for n in range(old)
    )
    n_pairs = sum(query >= old for query, _ in pairs)
    sentence = f"{n_new} of {N} tokens processed: {n_pairs} pairs; {old} entries from before"
    size = f"0 0 {10 * N} {10 * N + 14}"
    return f'<svg viewBox="{size}" role="img" aria-label="{sentence}">{dots}{rings}</svg>'


def inline_markdown_to_html(text: str) -> str:
    """Return a line of Markdown as HTML.

    Emphasis and links to notebooks are converted. Spaces around operators are replaced by no-break spaces, so
    that formulas do not wrap.
    """
    text = re.sub(
        r"\[(.+?)\]\((\w+)\.ipynb\)", r'<a href="notebooks/\2.html">\1</a>', escape(text.strip(), False)
    )
    text = re.sub(r"\*(.+?)\*", r"<em>\1</em>", text)
    return re.sub(r" ([+−×/]) ", "\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", text)


def match_section() -> re.Match[str]:
    """Find the section "Prefill against decode" in notebook 09, and return the match of SECTION.

    Its groups are `heading`, `table`, and the paragraphs `before` and `after` the table.

    Raises:
        ValueError: the notebook has no such section.
    """
    book = nbformat.read(NOTEBOOK, as_version=4)
    text = "\n\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    if not (found := SECTION.search(text)):
        raise ValueError(f"{NOTEBOOK.name} has no table under a heading 'Prefill against decode'")
    return found


def comparison_table_html() -> str:
    """Return the HTML of the table, with the paragraphs before and after it.

    The table has explicit ARIA roles. On a phone, its rows are displayed as a grid, and browsers would
    otherwise no longer expose them as table rows.
    """
    found = match_section()
    head, _, *lines = (
        [inline_markdown_to_html(cell) for cell in row.split("|")[1:-1]]
        for row in found["table"].splitlines()
    )
    columns = "".join(f'<th scope="col" role="columnheader">{name}</th>' for name in head[1:])
    top = f'<thead role="rowgroup"><tr role="row"><td role="cell"></td>{columns}</tr></thead>'
    rows = "".join(
        f'<tr role="row"><th scope="row" role="rowheader">{name}</th>'
        + "".join(f'<td role="cell">{cell}</td>' for cell in cells)
        + "</tr>"
        for name, *cells in lines
    )
    return (
        f"<p>{inline_markdown_to_html(found['before'])}</p>"
        f'<table class="phases" role="table">{top}<tbody role="rowgroup">{rows}</tbody></table>'
        f"<p>{inline_markdown_to_html(found['after'])}</p>"
    )


def comparison_card_page() -> str:
    """Return an HTML page with the printable card: drawings of the two phases, and the comparison table."""
    body = f"""<h1>{inline_markdown_to_html(match_section()["heading"])}</h1>
<div class="two">
<figure>{pass_svg(N)}<figcaption><b>Prefill.</b> Every token of the prompt runs. A dot is a pair: the token of
its row attends to the token of its column.</figcaption></figure>
<figure>{pass_svg(1)}<figcaption><b>Decode step.</b> The newest token runs alone. A ring is an entry that the
KV cache holds from before. Grey pairs are not scored again.</figcaption></figure>
</div>
{comparison_table_html()}
<footer class="soft">Watch It Decode, notebook 09.</footer>"""
    return printable_page("Prefill against decode", body, CARD_STYLE + TABLE_STYLE)
