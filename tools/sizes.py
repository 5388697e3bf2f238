"""Measure the notebooks' length, and list the limits that are exceeded.

    python -m tools sizes                   # a table of all notebooks, with the exceeded limits
    python -m tools sizes 03 04             # only those whose names begin like this
    python -m tools sizes --write           # write the computed minutes wherever they appear

The columns are:

- words: words of the Markdown (including folded parts), of printed sentences, and of sentences below
  pictures. Not counted are code, printed tables, displayed formulas, the links that launch a notebook, and
  the text alternatives of pictures. An inline formula counts as one word.
- lines: lines of code that are not blank, without those of the first cell.
- longest: lines of the longest code cell. A cell that consists of one class or function of `helpers` is left
  out.
- exercises: cells with an exercise.
- tables: tables of more than four rows, in the text or as output.
- paired: pairs of such tables with no picture, view, prediction or exercise between them.
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

LIMITS = {
    "longest": 25,
    "exercises": 2,
    "tables": 2,
    "paired": 0,
}
LOOKED_UP = "words", "questions"  # not read through
EXEMPT = "24", "A1", "A2", "one_page", *LOOKED_UP  # by the beginnings of their names
ROWS_OF_SHORT_TABLE = 4
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NOT_READ = re.compile(rf"{FENCED.pattern}|\$\$.*?\$\$|!\[.*?\]\(\S+\)|<[^>]+>", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
PREDICT = re.compile(r"(?:\*\*|<b>)Predict\b")
PICTURES = {"image/png", "image/svg+xml", "application/vnd.jupyter.widget-view+json"}
README = ROOT / "README.md"
SHORT = ("00", "01", "02", "03", "04", "09")  # the short way
MAP = re.compile(r"^\| notebook \| the question \| minutes \|\n(?:\|.*\|\n)+", re.M)  # also of 00's contents
MAPPED = re.compile(
    r"^(?P<line>\| \[[^]]+\]\((?:notebooks/)?(?P<name>\w+)\.ipynb\) \| [^|]+ \| )[\d +]*\|$", re.M
)
# In the line with the badges in a first cell.
HEADER = re.compile(
    r"(?P<needed>^.*?)(?: · \d+ minutes(?P<more>(?:, (?!and )[^·]*?)?)(?:, and \d+ for the exercises?)?)?"
    r"(?P<badges> · run it in \[.*$)",
    re.M,
)


def limits(name: str) -> dict[str, int]:
    """Return the limits of the notebook called `name`, by the name of the size.

    A notebook of the short way has at most one exercise.
    """
    if name.startswith(EXEMPT):
        return {"paired": LIMITS["paired"]}
    return {**LIMITS, "exercises": 1} if name.startswith(SHORT) else LIMITS


class Sizes(NamedTuple):
    """The sizes of a notebook. See the module's docstring."""

    words: int = 0
    lines: int = 0
    longest: int = 0
    exercises: int = 0
    tables: int = 0
    shown: int = 0
    paired: int = 0

    @property
    def minutes(self) -> tuple[int, int]:
        """The minutes for reading and the minutes for the exercises, each rounded to a multiple of five.

        Fitted to the times of 25 readers for 25 notebooks, with a mean error of 7 minutes.
        """
        exact = 1.6 * (self.words / 180 + self.lines * 4 / 60 + self.shown), 12 * self.exercises
        reading, exercises = (5 * round(minutes / 5) for minutes in exact)
        return max(5, reading), exercises

    def over(self, limits: dict[str, int] = LIMITS) -> Iterator[str]:
        """Yield a sentence for each limit that is exceeded."""
        for name, limit in limits.items():
            if (n := getattr(self, name)) > limit:
                yield f"{name}: {n:,}, at most {limit:,}"


def is_exercise(cell: NotebookNode) -> bool:
    """Return whether the cell is an exercise."""
    return any(tag.startswith("exercise-") for tag in cell.metadata.get("tags", []))


def count_words(markdown: str) -> int:
    """Return how many words of a Markdown text are read. A formula counts as one word.

    >>> count_words("**Two** [words](x.ipynb), $a + b$ | 3 · <br>")
    4
    """
    text = re.sub(r"\]\([^)]*\)", "]", NOT_READ.sub(" ", markdown))
    text = re.sub(r"\$[^$\n]+\$", "formula", text)
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def sentences(cell: NotebookNode) -> Iterator[str]:
    """Yield the sentences in a cell's outputs: printed lines of at least six words, and HTML paragraphs."""
    for output in cell.get("outputs", []):
        for line in output.get("text", "").splitlines():
            if sum(any(map(str.isalpha, word)) for word in line.split()) >= 6:
                yield line
        yield from re.findall(r"<p\b[^>]*>(.*?)</p>", str(output.get("data", {}).get("text/html", "")))


def lines(code: str) -> list[str]:
    """Return the lines of code that are not blank."""
    return [line for line in code.splitlines() if line.strip()]


@cache
def helpers() -> str:
    """Return the source of the package `helpers`."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "helpers").rglob("*.py"))


def is_taught(code: str) -> bool:
    """Return whether the cell consists of one class or function that `helpers` has, too."""
    begins = re.match(r"(?:class|def) \w+", code)
    return bool(begins and len(ast.parse(code).body) == 1 and re.search(rf"\b{begins[0]}\b", helpers()))


def has_picture(cell: NotebookNode) -> bool:
    """Return whether the cell shows a picture or a view."""
    return any(PICTURES & set(output.get("data", {})) for output in cell.get("outputs", []))


def long_tables(cell: NotebookNode) -> int:
    """Return the number of tables with more than four rows, headers not counted, that the cell shows.

    A code cell that also shows a picture or a view counts as 0.
    """
    if cell.cell_type == "markdown":
        n_rows = [len(lines(table)) - 2 for table in TABLE.findall(cell.source)]
    else:
        shown = [str(output.get("data", {}).get("text/html", "")) for output in cell.outputs]
        n_rows = [] if has_picture(cell) else [html.count("<tr") - 1 for html in shown]
    return sum(n > ROWS_OF_SHORT_TABLE for n in n_rows)


def sizes(book: NotebookNode) -> Sizes:
    """Return the sizes of a notebook."""
    text = [c for c in book.cells if c.cell_type == "markdown"]
    read = [HEADER.sub(r"\g<needed>", c.source) for c in text]
    cells = [c for c in book.cells if c.cell_type == "code"]
    code = [c for c in cells if not c.metadata.get("jupyter", {})]
    shown = [sentence for c in cells for sentence in sentences(c)]
    fenced = [line for c in text for block in FENCED.findall(c.source) for line in lines(block)[1:-1]]
    parts = [
        "table" * long_tables(c)
        or "other" * (has_picture(c) or is_exercise(c) or bool(PREDICT.search(c.source)))
        for c in book.cells
    ]
    return Sizes(
        words=sum(map(count_words, [*read, *shown])),
        lines=sum(len(lines(c.source)) for c in code) + len(fenced),
        longest=max((len(lines(c.source)) for c in code if not is_taught(c.source)), default=0),
        exercises=sum(is_exercise(c) for c in book.cells),
        tables=sum(long_tables(c) for c in book.cells),
        paired="".join(parts).count("tabletable"),
        shown=sum(has_picture(c) for c in code) + sum(len(PREDICT.findall(c.source)) for c in text),
    )


def with_minutes(first: str, measured: Sizes) -> str:
    """Return the text of a notebook's first cell, with the notebook's minutes before the badges."""
    reading, exercises = measured.minutes
    plural = "s" * (measured.exercises > 1)
    times = f"{reading} minutes\\g<more>" + f", and {exercises} for the exercise{plural}" * bool(exercises)
    return HEADER.sub(lambda header: header.expand(rf"\g<needed> · {times}\g<badges>"), first, count=1)


def with_all_minutes(text: str, minutes: dict[str, tuple[int, int]]) -> str:
    """Return a text with current minutes in its table of notebooks, and their sums after its ways.

    Args:
        text: that of the README or of a cell.
        minutes: the minutes for reading and for the exercises, by notebook.
    """
    numbered = {name: pair for name, pair in minutes.items() if name[:2].isdigit()}
    text = MAPPED.sub(lambda row: f"{row['line']}{in_map(minutes.get(row['name'], ()))} |", text)
    for way, starts, unit, size in (("short", SHORT, "minutes", 1), ("whole", "", "hours", 60)):
        pairs = [pair for name, pair in numbered.items() if name.startswith(starts)]
        reading, total = round(sum(a for a, _ in pairs) / size), round(sum(map(sum, pairs)) / size)
        times = rf"\g<1>{reading} {unit}, {total} with the exercises"
        text = re.sub(rf"(\*\*The {way} way\*\*, )[^:\n]+?(?=:)", times, text)
    return text


def in_map(minutes: Iterable[int]) -> str:
    """Format minutes as in the README's table: "35", or "35 + 10" with exercises."""
    return " + ".join(str(n) for n in minutes if n)


def rewritten() -> dict[Path, str]:
    """Return the README and the notebooks with current minutes, by path.

    Notebook 00 also gets the README's table.
    """
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
    """Print the table. With --write, write the minutes."""
    arguments = parser(__doc__)
    arguments.add_argument("names", nargs="*", help="beginnings of file names (default: all)")
    arguments.add_argument("--write", action="store_true", help="write the minutes wherever they appear")
    options = arguments.parse_args()
    names = Sizes._fields
    print(" ".join(f"{name:>9}" for name in names))
    for path in (path for path in pick(options.names) if path.stem not in LOOKED_UP):
        measured = sizes(nbformat.read(path, as_version=4))
        row = " ".join(f"{getattr(measured, name):>9,}" for name in names)
        print(row, in_map(measured.minutes), path.stem, "|", "; ".join(measured.over(limits(path.stem))))
    for path, text in rewritten().items() if options.write else ():
        path.write_text(text, encoding="utf-8", newline="\n")
