"""Count what a notebook asks of its reader, and say what is over its limit.

    python -m tools sizes                   # a table of all notebooks, and what is too much
    python -m tools sizes 03 04             # by the beginning of their names
    python -m tools sizes --write           # put the computed minutes wherever they are said

What counts:

- words: all that a reader sees: the Markdown, folded parts too, what is printed in sentences, and the
  sentences under pictures. Code, tables that are printed, formulas on lines of their own, the links that
  launch a notebook, and a picture told in words do not count. A formula within a line is one word.
- paragraph: the words of the longest one; a list, a table and a heading are none.
- cells: those with code, the folded first one too; its lines do not count.
- lines: those with something on them.
- longest: a cell that is one class or function that helpers have too may be long.
- tables: those of more than four lines, in the text or as an output; and how often two stand in a row, with
  no picture, view, prediction or exercise between.
- shown: pictures, views and predictions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from tools.launch import ROOT, parser
from tools.notebooks import pick

MOST = {
    "longest": 25,
    "exercises": 2,
    "tables": 2,
    "paired": 0,
}
LOOKED_UP = "words", "questions"  # not read through
EXEMPT = "24", "A1", "A2", "one_page", *LOOKED_UP  # by the beginnings of their names
LINES_OF_A_TABLE = 4
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NOT_READ = re.compile(rf"{FENCED.pattern}|\$\$.*?\$\$|!\[.*?\]\(\S+\)|<[^>]+>", re.MULTILINE | re.DOTALL)
NO_PARAGRAPH = re.compile(r"\s*(?:[|#-]|\d\. )")
TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
PREDICT = re.compile(r"(?:\*\*|<b>)Predict\b")
PICTURES = {"image/png", "image/svg+xml", "application/vnd.jupyter.widget-view+json"}
README = ROOT / "README.md"
SHORT = ("00", "01", "02", "03", "04", "09")  # the short way
MAP = re.compile(r"^\| notebook \| the question \| minutes \|\n(?:\|.*\|\n)+", re.M)  # also of 00's contents
MAPPED = re.compile(
    r"^(?P<line>\| \[[^]]+\]\((?:notebooks/)?(?P<name>\w+)\.ipynb\) \| [^|]+ \| )[\d +]*\|$", re.M
)
# In the line of a first cell that holds the badges.
HEADER = re.compile(
    r"(?P<needed>^.*?)(?: · \d+ minutes(?P<more>(?:, (?!and )[^·]*?)?)(?:, and \d+ for the exercises?)?)?"
    r"(?P<badges> · run it in \[.*$)",
    re.M,
)


def limits(name: str) -> dict[str, int]:
    """The limits of a notebook of this name; a page of the short way has one exercise at most."""
    if name.startswith(EXEMPT):
        return {"paired": MOST["paired"]}
    return {**MOST, "exercises": 1} if name.startswith(SHORT) else MOST


class Sizes(NamedTuple):
    """The sizes of one notebook."""

    words: int = 0
    paragraph: int = 0
    cells: int = 0
    lines: int = 0
    longest: int = 0
    exercises: int = 0
    tables: int = 0
    shown: int = 0
    paired: int = 0

    @property
    def minutes(self) -> tuple[int, int]:
        """Minutes of reading, and of the exercises, rounded to five.

        Fitted to the minutes that 25 readers took for 25 notebooks; the mean error is 7.
        """
        exact = 1.6 * (self.words / 180 + self.lines * 4 / 60 + self.shown), 12 * self.exercises
        reading, exercises = (5 * round(each / 5) for each in exact)
        return max(5, reading), exercises

    def over(self, limits: dict[str, int] = MOST) -> Iterator[str]:
        """Name each limit that is exceeded."""
        for name, most in limits.items():
            if (n := getattr(self, name)) > most:
                yield f"{name}: {n:,}, at most {most:,}"


def asks(cell: NotebookNode) -> bool:
    """Whether the cell is an exercise's."""
    return any(tag.startswith("exercise-") for tag in cell.metadata.get("tags", []))


def words(markdown: str) -> int:
    """How many words a reader reads in it.

    >>> words("**Two** [words](x.ipynb), $a + b$ | 3 · <br>")
    4
    """
    text = re.sub(r"\]\([^)]*\)", "]", NOT_READ.sub(" ", markdown))
    text = re.sub(r"\$[^$\n]+\$", "formula", text)
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def sentences(cell: NotebookNode) -> Iterator[str]:
    """What a cell shows in sentences: printed lines of six words and more, and paragraphs under a picture."""
    for output in cell.get("outputs", []):
        for line in output.get("text", "").splitlines():
            if sum(any(map(str.isalpha, word)) for word in line.split()) >= 6:
                yield line
        yield from re.findall(r"<p\b[^>]*>(.*?)</p>", str(output.get("data", {}).get("text/html", "")))


def lines(code: str) -> list[str]:
    """The lines with something on them."""
    return [line for line in code.splitlines() if line.strip()]


@cache
def helpers() -> str:
    """All that stands in helpers."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "helpers").rglob("*.py"))


def is_taught(code: str) -> bool:
    """Whether the cell is one class or function that later notebooks import: it may be long."""
    begins = re.match(r"(?:class|def) \w+", code)
    return bool(begins and len(ast.parse(code).body) == 1 and re.search(rf"\b{begins[0]}\b", helpers()))


def pictures(cell: NotebookNode) -> bool:
    """Whether the cell shows a picture or a view."""
    return any(PICTURES & set(output.get("data", {})) for output in cell.get("outputs", []))


def long_tables(cell: NotebookNode) -> int:
    """How many tables of more than four lines the cell shows, headings not counted."""
    if cell.cell_type == "markdown":
        found = [len(lines(table)) - 2 for table in TABLE.findall(cell.source)]
    else:
        shown = [str(output.get("data", {}).get("text/html", "")) for output in cell.outputs]
        found = [] if pictures(cell) else [html.count("<tr") - 1 for html in shown]
    return sum(n > LINES_OF_A_TABLE for n in found)


def sizes(book: NotebookNode) -> Sizes:
    """Measure a notebook."""
    text = [c for c in book.cells if c.cell_type == "markdown"]
    read = [HEADER.sub(r"\g<needed>", c.source) for c in text]
    paragraphs = [one for t in read for one in t.split("\n\n") if not NO_PARAGRAPH.match(one)]
    cells = [c for c in book.cells if c.cell_type == "code"]
    code = [c for c in cells if not c.metadata.get("jupyter", {})]
    shown = [sentence for c in cells for sentence in sentences(c)]
    fenced = [line for c in text for block in FENCED.findall(c.source) for line in lines(block)[1:-1]]
    parts = [
        "table" * long_tables(c) or "other" * (pictures(c) or asks(c) or bool(PREDICT.search(c.source)))
        for c in book.cells
    ]
    return Sizes(
        words=sum(map(words, [*read, *shown])),
        paragraph=max(map(words, paragraphs), default=0),
        cells=len(cells),
        lines=sum(len(lines(c.source)) for c in code) + len(fenced),
        longest=max((len(lines(c.source)) for c in code if not is_taught(c.source)), default=0),
        exercises=sum(asks(c) for c in book.cells),
        tables=sum(long_tables(c) for c in book.cells),
        paired="".join(parts).count("tabletable"),
        shown=sum(pictures(c) for c in code) + sum(len(PREDICT.findall(c.source)) for c in text),
    )


def with_minutes(first: str, found: Sizes) -> str:
    """The first cell's text with these minutes, before the badges."""
    reading, exercises = found.minutes
    many = "s" * (found.exercises > 1)
    both = f"{reading} minutes\\g<more>" + f", and {exercises} for the exercise{many}" * bool(exercises)
    return HEADER.sub(lambda found: found.expand(rf"\g<needed> · {both}\g<badges>"), first, count=1)


def with_all_minutes(text: str, each: dict[str, tuple[int, int]]) -> str:
    """A text with these minutes in its map and beside its ways: those of the ways are added up."""
    numbered = {name: pair for name, pair in each.items() if name[:2].isdigit()}
    text = MAPPED.sub(lambda found: f"{found['line']}{in_map(each.get(found['name'], ()))} |", text)
    for way, its, unit, size in (("short", SHORT, "minutes", 1), ("whole", "", "hours", 60)):
        pairs = [pair for name, pair in numbered.items() if name.startswith(its)]
        reading, both = round(sum(a for a, _ in pairs) / size), round(sum(map(sum, pairs)) / size)
        said = rf"\g<1>{reading} {unit}, {both} with the exercises"
        text = re.sub(rf"(\*\*The {way} way\*\*, )[^:\n]+?(?=:)", said, text)
    return text


def in_map(minutes: Iterable[int]) -> str:
    """Minutes as a map has them: 35, or 35 + 10."""
    return " + ".join(str(n) for n in minutes if n)


def rewritten() -> dict[Path, str]:
    """The README and the notebooks as they have to be: with their minutes, 00 with the README's map."""
    books = {path: nbformat.read(path, as_version=4) for path in pick([]) if path.stem not in LOOKED_UP}
    minutes = {path.stem: sizes(book).minutes for path, book in books.items()}
    readme = with_all_minutes(README.read_text(encoding="utf-8"), minutes)
    (table,) = MAP.findall(readme.replace("](notebooks/", "]("))
    for book in books.values():
        for cell in book.cells:
            if "**The short way**" in cell.source:
                cell.source = with_all_minutes(MAP.sub(lambda _: table, cell.source), minutes)
        book.cells[0].source = with_minutes(book.cells[0].source, sizes(book))
    return {README: readme} | {path: nbformat.writes(book) + "\n" for path, book in books.items()}


def main() -> None:
    """Print the table, and write the minutes if asked to."""
    arguments = parser(__doc__)
    arguments.add_argument("names", nargs="*", help="beginnings of file names (default: all)")
    arguments.add_argument("--write", action="store_true", help="put the minutes where they are said")
    wanted = arguments.parse_args()
    names = Sizes._fields
    print(" ".join(f"{name:>9}" for name in names))
    for path in (path for path in pick(wanted.names) if path.stem not in LOOKED_UP):
        found = sizes(nbformat.read(path, as_version=4))
        row = " ".join(f"{getattr(found, name):>9,}" for name in names)
        print(row, in_map(found.minutes), path.stem, "|", "; ".join(found.over(limits(path.stem))))
    for path, text in rewritten().items() if wanted.write else ():
        path.write_text(text, encoding="utf-8", newline="\n")
