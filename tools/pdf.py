"""Print pages of the built site as one PDF: `python -m tools site`, and then

    python -m tools pdf            # the whole series: build/pdf/watch-it-decode.pdf
    python -m tools pdf build      # a way through, by its first word: short, understand, size, find
    python -m tools pdf 03         # one notebook, by the beginning of its name

Chromium prints it. Views are pictures, code wraps, folds are open, and links lead to a page of the same PDF,
or else to the published site.
"""

from __future__ import annotations

import functools
import html
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.launch import ROOT, argument_parser, site_url
from tools.notebooks import notebook_paths
from tools.pictures import running_chromium
from tools.site import notebook_links
from tools.sizes import WAYS

ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
HEAD = re.compile(r'<link [^>]*rel="stylesheet"[^>]*>|<script>window\.MathJax.*?</script>')
FOLD = re.compile(r"<details(?=[^>]*>\s*<summary>(?!The picture in words))")
DROPPED = re.compile(r'<a class="headerlink".*?</a>|<script type="application/json".*?</script>', re.DOTALL)
LINK = re.compile(r'(?<=<a )(?P<before>[^>]*?)href="(?P<address>[^"]*)"')
STYLE = """
@page { size: A4; margin: 18mm 16mm; }
html, body { background: #fff; font-size: 14px; }
article { max-width: none; padding: 0; }
:is(ul, article) + article { break-before: page; }
.bd-article :is(p, ul, ol, dl) { max-width: none !important; }
div.cell div.cell_input pre, div.cell div.cell_output pre, pre { font-size: 10.5px; white-space: pre-wrap;
  overflow-wrap: anywhere; overflow: visible; max-height: none; }
.bd-article table { font-size: 11px; }
:is(h1, h2, h3) { break-after: avoid; }
:is(.wid-figure, .still img, tr, div.math) { break-inside: avoid; }
.contents li { list-style: none; }
details:not([open]) { display: none; }
"""


def chosen_pages(what: str) -> tuple[str, list[Path]]:
    """Return the title of a PDF and the paths of its notebooks, in their order."""
    ways = {way.removeprefix("The ").split()[0].lower(): way for way in WAYS}
    if what and what not in ways:
        paths = notebook_paths([what])
        return paths[0].stem, paths
    links = [Path(link.address).stem for link in notebook_links()]
    names = [name for name in links if not what or name.startswith(WAYS[ways[what]])]
    return ways.get(what, "Watch it decode"), [ROOT / "notebooks" / f"{name}.ipynb" for name in names]


def page_to_print(title: str, pages: Sequence[Path]) -> str:
    """Return one HTML page with the articles of several pages of the site, for a file next to them."""
    names = [path.stem for path in pages]
    texts = [path.read_text(encoding="utf-8") for path in pages]

    def link(found: re.Match[str], name: str) -> str:
        path, _, place = found["address"].partition("#")
        stem = Path(path).stem if path else name
        if re.match("[a-z]+:", path):
            address = found["address"]
        elif stem in names:
            address = f"#{stem}--{place}"
        else:
            there = "notebooks/" if not path.startswith("../") else ""
            address = f"{site_url()}{there}{found['address'].removeprefix('../')}"
        return f'{found["before"]}href="{address}"'

    articles, lines = [], []
    for name, text in zip(names, texts, strict=True):
        found = ARTICLE.search(text)
        assert found, name
        body = FOLD.sub("<details open", DROPPED.sub("", found[0]))
        body = re.sub(r'\bid="([^"]*)"', rf'id="{name}--\1"', body)
        body = LINK.sub(functools.partial(link, name=name), body)
        articles.append(body.replace(">", f' id="{name}--">', 1))
        heading = re.sub("<.*?>", "", found[0].partition("<h1>")[2].partition("<a ")[0])
        lines.append(f'<li><a href="#{name}--">{heading}</a></li>')
    head = "\n".join(dict.fromkeys(one for text in texts for one in HEAD.findall(text)))
    front = f"<h1>{html.escape(title)}</h1><p>{site_url()}</p><ul class='contents'>{''.join(lines)}</ul>"
    return (
        f'<!doctype html><html lang="en" data-theme="light"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>{head}"
        f'<script defer src="../_static/tex-svg.js"></script><style>{STYLE}</style>\n'
        f"<body>{front if len(pages) > 1 else ''}{''.join(articles)}</body></html>"
    )


def main() -> None:
    """Write the PDF, and print its path and its size."""
    parser = argument_parser(__doc__)
    parser.add_argument(
        "what", nargs="?", default="", help="a way through, or the beginning of a notebook's name"
    )
    title, notebooks = chosen_pages(parser.parse_args().what)
    pages = [ROOT / "build" / "notebooks" / f"{path.stem}.html" for path in notebooks]
    if missing := [page for page in pages if not page.exists()]:
        sys.exit(f"{missing[0]} is not there: run `python -m tools site` first")
    name = "watch-it-decode" if title == "Watch it decode" else title.lower().replace(" ", "-")
    source, made = pages[0].with_name(f"{name}-to-print.html"), ROOT / "build" / "pdf" / f"{name}.pdf"
    made.parent.mkdir(exist_ok=True)
    source.write_text(page_to_print(title, pages), encoding="utf-8")
    foot = '<div style="font-size:8px;width:100%;text-align:center"><span class="pageNumber"></span></div>'
    try:
        with running_chromium() as browser:
            page = browser.new_page()
            page.set_default_timeout(600_000)
            page.goto(source.as_uri())
            page.evaluate("MathJax.startup.promise")
            page.pdf(
                path=made,
                prefer_css_page_size=True,
                print_background=True,
                outline=True,
                tagged=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=foot,
            )
    finally:
        source.unlink()
    print(made, f"{made.stat().st_size / 1e6:.1f} MB")
