"""The worksheet for notebooks 01 and 03. site.py writes it twice, blank and with answers.

It fits on one sheet of paper, and has two tables to be filled in by hand. The table from notebook 01 has a
row for each position and a column for each head. The triangle from notebook 03 shows how often each query-key
pair is scored. Tokens, values, heads and answers are from helpers/toy.py and helpers/cost/counts.py.
"""

from __future__ import annotations

from html import escape

from helpers import toy
from helpers.cost.counts import reply_counts

REPLY, NEW = 8, "nice"  # tokens of the long run's reply; its first token
RULES = {
    "even": "tokens at even positions: 2, 4, …",
    "newest": "the newest token it sees",
    "first": "the first token",
    "all": "every token it sees",
}

STYLE = """
@page { margin: 13mm; }
* { box-sizing: border-box; }
html { background: #f6f8fa; }
body { width: 182mm; margin: 8mm auto; padding: 9mm; background: #fff; color: #1b1f24;
  box-sizing: content-box; font: 10.5pt/1.35 system-ui, "Segoe UI", Helvetica, Arial, sans-serif;
  font-variant-numeric: tabular-nums; }
h1 { margin: 0; font-size: 17pt; letter-spacing: -0.01em; }
h2 { margin: 7mm 0 2mm; font-size: 12pt; }
p { margin: 2mm 0 0; }
ol { margin: 2mm 0 0; padding-left: 5mm; }
table { border-collapse: collapse; }
th { font-weight: 600; text-align: left; }
.soft { color: #57606a; font-weight: 400; }
.walk { width: 100%; table-layout: fixed; }
.walk thead th { padding: 0 2mm 1.5mm; vertical-align: top; line-height: 1.2; }
.walk thead .given { padding: 0; }
.walk thead .soft { display: block; font-size: 8.5pt; }
.walk tbody :is(th, td) { height: 9.5mm; padding: 0 2mm; border: 0.3mm solid #8c959f; }
.walk .given { width: 18mm; text-align: center; }
.walk .token { width: 26mm; }
.walk tbody :is(.given, .token) { background: #f6f8fa; }
.walk .new > * { border-style: dashed; }
.walk tbody .new > * { background: none; }
.both { display: flex; gap: 8mm; align-items: stretch; }
.triangle th { padding: 0 2mm 0 0; font-size: 9pt; line-height: 1; text-align: right; white-space: nowrap; }
.triangle b { display: inline-block; width: 6mm; }
.triangle thead th { width: 8.9mm; padding: 0 0 1mm; text-align: center; }
.triangle td { width: 8.9mm; height: 8.2mm; border: 0.3mm solid #8c959f; }
.solved { color: #0072b2; font-weight: 600; text-align: center; }
.triangle td.off { border: 0; }
.triangle .ends td:not(.off) { border-bottom: 0.7mm solid #1b1f24; }
.blanks { flex: 1; display: flex; flex-direction: column; gap: 5.5mm; padding-top: 5mm; }
.blanks b { margin-bottom: -3mm; }
.blanks b + p ~ b { margin-top: 4mm; }
.blanks p { display: grid; grid-template-columns: 25mm 1fr; align-items: end; margin: 0; }
.blanks i { height: 6mm; border-bottom: 0.3mm solid #8c959f; }
footer { margin-top: 5mm; font-size: 8.5pt; }
@media screen and (max-width: 800px) {
  body { width: auto; margin: 0; padding: 5mm; }
  .both { flex-direction: column; }
  .walk, .triangle { display: block; overflow-x: auto; }
}
@media print { html { background: none; } body { margin: 0; padding: 0; width: auto; } }
"""


def printable_page(title: str, body: str, style: str = "") -> str:
    """Return an HTML page in the style of the printed worksheets.

    Args:
        title: the title of the page.
        body: the HTML of its body.
        style: CSS rules in addition to STYLE.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>'
        f"<style>{STYLE}{style}</style></head><body>\n{body}\n</body></html>\n"
    )


def positions_and_heads_table(solved: bool = False) -> str:
    """Return the HTML table of positions and heads.

    It has one row per prompt token, and a row for the first new token. The columns of the heads are blank
    unless `solved` is true.
    """
    words = [*toy.PROMPT, NEW]
    lines = [
        "".join(f'<td class="solved">{mean:.4g}</td>' if solved else "<td></td>" for mean in line)
        for line in toy.run_pass(toy.look_up_numbers(words))
    ]
    heads = "".join(
        f'<th scope="col">{escape(head)}<span class="soft">{escape(RULES[head])}</span></th>'
        for head in toy.HEADS
    )
    rows = "".join(
        f'<tr><th scope="row" class="given">{position}</th><td class="token">{escape(word)}</td>'
        f'<td class="given">{toy.NUMBERS[word]}</td>{lines[position - 1]}</tr>'
        for position, word in enumerate(toy.PROMPT, 1)
    )
    new = len(toy.PROMPT) + 1
    decode = (
        f'<tr class="new"><th scope="row" class="given">{new}</th><td class="token">{NEW}</td>'
        f'<td class="given">{toy.NUMBERS[NEW]}</td>{lines[-1]}</tr>'
    )
    return (
        '<table class="walk" tabindex="0"><thead><tr><th scope="col" class="given">position</th>'
        '<th scope="col" class="token">token</th><th scope="col" class="given">carries</th>'
        f"{heads}</tr></thead><tbody>{rows}{decode}</tbody></table>"
    )


def pair_counts_table(solved: bool = False) -> str:
    """Return the HTML table of query-key pairs for a reply of REPLY tokens, without a cache.

    Each cell is for the number of passes in which its pair is scored. The cells are blank unless `solved` is
    true. A heavy line marks the end of the prompt.
    """
    P = len(toy.PROMPT)
    n = P + REPLY - 1  # the last token emitted is never run
    head = "".join(f'<th scope="col">{key}</th>' for key in range(1, n + 1))
    rows = []
    for query in range(1, n + 1):
        word = escape(toy.PROMPT[query - 1]) if query <= P else '<span class="soft">new</span>'
        passes = sum(query <= P + new for new in range(REPLY))  # in which this token is processed
        cell = f'<td class="solved">{passes}</td>' if solved else "<td></td>"
        cells = cell * query + "<td class=off></td>" * (n - query)
        rows.append(
            f'<tr{" class=ends" if query == P else ""}><th scope="row">{word} {query}</th>{cells}</tr>'
        )
    return (
        f'<table class="triangle" tabindex="0"><thead><tr><th class="soft">attends to</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def worksheet_page(solved: bool = False) -> str:
    """Return the worksheet as an HTML page, blank or with the answers."""
    P, blanks = len(toy.PROMPT), ""
    for name, cached in (("without a cache", False), ("with the cache", True)):
        work = reply_counts(prompt_tokens=P, reply_tokens=REPLY, cached=cached)
        counts = {
            "tokens processed": work.tokens_processed,
            "pairs scored": work.pairs,
            "rows kept": work.entries_kept,
        }
        blanks += f"<b>{name}</b>" + "".join(
            f'<p>{what} <i class="solved">{n if solved else ""}</i></p>' for what, n in counts.items()
        )
    title = "Four heads by hand" + (": answers" if solved else "")
    body = f"""<h1>{title}</h1>
<ol>
<li>A token sees itself and what stands before it. Each head picks some of those tokens by its rule.</li>
<li>Write into each cell the average of what the picked tokens carry, or 0 if it picks none.</li>
<li>Without a cache, the first pass runs the prompt, each later pass all tokens so far, and one new token
comes out of each. In a pass each token that runs is scored with itself and with all before it. Write into the
triangle how often one head scores each pair, over all {REPLY} passes. No row is kept.</li>
<li>With the cache each token that has run leaves a row, its key and its value. After the prompt a pass runs
the newest token alone, scored with itself and all kept rows. Fill in the six lines.</li>
</ol>
<h2>The table <span class="soft">· a line for each position, a column for each head (01)</span></h2>
{positions_and_heads_table(solved)}
<p class="soft">Line {P + 1} is the first new token, which the model has said.</p>
<h2>The triangle <span class="soft">· {P} prompt tokens, {REPLY} new ones, the last never run (03)</span></h2>
<div class="both">{pair_counts_table(solved)}<div class="blanks">{blanks}</div></div>
<footer class="soft">Watch It Decode, notebooks 01 and 03. Prompt, numbers and rules after
“From Prompt to Prediction”, Machine Learning Mastery, 2026.</footer>"""
    return printable_page(f"Worksheet: {title.lower()}", body)
