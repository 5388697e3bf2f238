"""Measure the notebooks' length, and list the limits that are exceeded.

    python -m tools sizes                   # a table of all notebooks, with the exceeded limits
    python -m tools sizes 03 04             # only those whose names begin like this
    python -m tools sizes --write           # write the computed minutes wherever they appear

The columns are:

- words: words of the Markdown (including folded parts), of printed sentences, and of sentences below
  pictures. Not counted are code, printed tables, displayed formulas, the links that launch a notebook, and
  the text alternatives of pictures. An inline formula counts as one word.
- lines: lines of code that are not blank, without those of the first cell.
- longest_cell: lines of the longest code cell. A cell that consists of one class or function of `helpers` is
  left out.
- exercises: cells with an exercise.
- tables: tables of more than four rows, in the text or as output.
- adjacent_tables: pairs of such tables with no picture, view, prediction or exercise between them.
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

from tools.launch import ROOT, argument_parser
from tools.notebooks import notebook_paths

LIMITS = {
    "longest_cell": 25,
    "exercises": 2,
    "tables": 2,
    "adjacent_tables": 0,
}
LOOKED_UP = "words", "questions"  # not read through
EXEMPT = "24", "A1", "A2", *LOOKED_UP  # by the beginnings of their names
ROWS_OF_SHORT_TABLE = 4
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NOT_READ = re.compile(rf"{FENCED.pattern}|\$\$.*?\$\$|!\[.*?\]\(\S+\)|<[^>]+>", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n?)+", re.MULTILINE)
PREDICT = re.compile(r"(?:\*\*|<b>)Predict\b")
PICTURES = {"image/png", "image/svg+xml", "application/vnd.jupyter.widget-view+json"}
README = ROOT / "README.md"
SHORT_WAY = ("00", "01", "02", "03", "04", "09")
WAYS = {  # the ways through, as the README and 00 name them, and how their notebooks' names begin
    "The short way": SHORT_WAY,
    "The whole way": tuple(f"{n:02}" for n in range(25)),
    "Understand it": (*SHORT_WAY, "one_page"),
    "Build it": ("05", "06", "07", "08", "10", "13"),
    "Size and pay for it": ("11", "12", "15", "16", "17", "20"),
    "Find what is wrong": ("05", "21", "22", "A1", "A2"),
}
README_ROW = re.compile(
    r"^(?P<line>\| \[[^]]+\]\(notebooks/(?P<name>\w+)\.ipynb\) \| [^|]+ \| )[\d +]*\|$", re.M
)
# In the line with the badges in a first cell.
HEADER = re.compile(
    r"(?P<needed>^.*?)(?: · \d+ minutes(?P<more>(?:, (?!and )[^·]*?)?)(?:, and \d+ for the exercises?)?)?"
    r"(?P<badges> · run it in \[.*$)",
    re.M,
)


def limits_of_notebook(name: str) -> dict[str, int]:
    """Return the limits for the notebook called `name`, by the name of the size.

    In the short way, a notebook may have only one exercise.
    """
    if name.startswith(EXEMPT):
        return {"adjacent_tables": LIMITS["adjacent_tables"]}
    return {**LIMITS, "exercises": 1} if name.startswith(SHORT_WAY) else LIMITS


class Minutes(NamedTuple):
    """The minutes for reading a notebook, and those for its exercises."""

    reading: int
    exercises: int


class Sizes(NamedTuple):
    """The sizes of a notebook; see the docstring of this module."""

    words: int = 0
    lines: int = 0
    longest_cell: int = 0
    exercises: int = 0
    tables: int = 0
    shown: int = 0
    adjacent_tables: int = 0

    @property
    def minutes(self) -> Minutes:
        """The minutes for the notebook, rounded to multiples of five.

        A reader reads 200 words a minute, spends 8 seconds on a line of code, and a minute and a half on a
        picture, a view or a prediction.
        """
        exact = self.words / 200 + self.lines * 8 / 60 + 1.5 * self.shown, 12 * self.exercises
        reading, exercises = (5 * round(minutes / 5) for minutes in exact)
        return Minutes(max(5, reading), exercises)

    def exceeded(self, limits: dict[str, int] = LIMITS) -> Iterator[str]:
        """Yield a sentence for each limit that is exceeded."""
        for name, limit in limits.items():
            if (n := getattr(self, name)) > limit:
                yield f"{name}: {n:,}, at most {limit:,}"


def is_exercise(cell: NotebookNode) -> bool:
    """Return whether a cell is an exercise, by its tags."""
    return any(tag.startswith("exercise-") for tag in cell.metadata.get("tags", []))


def count_words(markdown: str) -> int:
    """Count the words of a Markdown text that a reader reads. A formula counts as one word.

    >>> count_words("**Two** [words](x.ipynb), $a + b$ | 3 · <br>")
    4
    """
    text = re.sub(r"\]\([^)]*\)", "]", NOT_READ.sub(" ", markdown))
    text = re.sub(r"\$[^$\n]+\$", "formula", text)
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def output_sentences(cell: NotebookNode) -> Iterator[str]:
    """Yield the sentences in a cell's outputs: printed lines of at least six words, and HTML paragraphs."""
    for output in cell.get("outputs", []):
        for line in output.get("text", "").splitlines():
            if sum(any(map(str.isalpha, word)) for word in line.split()) >= 6:
                yield line
        yield from re.findall(r"<p\b[^>]*>(.*?)</p>", str(output.get("data", {}).get("text/html", "")))


def nonblank_lines(code: str) -> list[str]:
    """Return the lines of code that are not blank."""
    return [line for line in code.splitlines() if line.strip()]


@cache
def helpers_source() -> str:
    """Return the source code of the whole package `helpers`."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "helpers").rglob("*.py"))


def is_in_helpers(code: str) -> bool:
    """Return whether a cell consists of one class or function that is also defined in `helpers`."""
    begins = re.match(r"(?:class|def) \w+", code)
    return bool(
        begins and len(ast.parse(code).body) == 1 and re.search(rf"\b{begins[0]}\b", helpers_source())
    )


def has_picture(cell: NotebookNode) -> bool:
    """Return whether a cell shows a picture or a view."""
    return any(PICTURES & set(output.get("data", {})) for output in cell.get("outputs", []))


def count_long_tables(cell: NotebookNode) -> int:
    """Count the tables of a cell that have more than four rows, without their headers.

    A code cell that also shows a picture or a view counts as 0.
    """
    if cell.cell_type == "markdown":
        n_rows = [len(nonblank_lines(table)) - 2 for table in TABLE.findall(cell.source)]
    else:
        shown = [str(output.get("data", {}).get("text/html", "")) for output in cell.outputs]
        n_rows = [] if has_picture(cell) else [html.count("<tr") - 1 for html in shown]
    return sum(n > ROWS_OF_SHORT_TABLE for n in n_rows)


def measure_notebook(book: NotebookNode) -> Sizes:
    """Measure a notebook."""
    text = [c for c in book.cells if c.cell_type == "markdown"]
    read = [HEADER.sub(r"\g<needed>", c.source) for c in text]
    cells = [c for c in book.cells if c.cell_type == "code"]
    code = [c for c in cells if not c.metadata.get("jupyter", {})]
    shown = [sentence for c in cells for sentence in output_sentences(c)]
    fenced = [
        line for c in text for block in FENCED.findall(c.source) for line in nonblank_lines(block)[1:-1]
    ]
    parts = [
        "table" * count_long_tables(c)
        or "other" * (has_picture(c) or is_exercise(c) or bool(PREDICT.search(c.source)))
        for c in book.cells
    ]
    return Sizes(
        words=sum(map(count_words, [*read, *shown])),
        lines=sum(len(nonblank_lines(c.source)) for c in code) + len(fenced),
        longest_cell=max(
            (len(nonblank_lines(c.source)) for c in code if not is_in_helpers(c.source)), default=0
        ),
        exercises=sum(is_exercise(c) for c in book.cells),
        tables=sum(count_long_tables(c) for c in book.cells),
        adjacent_tables="".join(parts).count("tabletable"),
        shown=sum(has_picture(c) for c in code) + sum(len(PREDICT.findall(c.source)) for c in text),
    )


def with_minutes(first_cell: str, sizes: Sizes) -> str:
    """Write a notebook's minutes before the badges in the text of its first cell, and return the text."""
    reading, exercises = sizes.minutes
    plural = "s" * (sizes.exercises > 1)
    times = f"{reading} minutes\\g<more>" + f", and {exercises} for the exercise{plural}" * bool(exercises)
    return HEADER.sub(lambda header: header.expand(rf"\g<needed> · {times}\g<badges>"), first_cell, count=1)


def with_all_minutes(text: str, minutes: dict[str, Minutes]) -> str:
    """Write current minutes into the table of notebooks in a text, and their sums after each of `WAYS`.

    Args:
        text: the text of the README or of a cell.
        minutes: the minutes of each notebook, by its name.
    """
    text = README_ROW.sub(lambda row: f"{row['line']}{format_minutes(minutes.get(row['name'], ()))} |", text)
    for way, starts in WAYS.items():
        unit, size = ("hours", 60) if way == "The whole way" else ("minutes", 1)
        pairs = [pair for name, pair in minutes.items() if name.startswith(starts)]
        reading, total = round(sum(a for a, _ in pairs) / size), round(sum(map(sum, pairs)) / size)
        times = rf"\g<1>{reading} {unit}, {total} with the exercises"
        text = re.sub(rf"(\*\*{way}\*\*, )[^:\n]+?(?=:)", times, text)
    return text


def format_minutes(minutes: Iterable[int]) -> str:
    """Format minutes as in the README's table: "35", or "35 + 10" with exercises."""
    return " + ".join(str(n) for n in minutes if n)


def texts_with_current_minutes() -> dict[Path, str]:
    """Return the README and the notebooks with current minutes, by path."""
    books = {
        path: nbformat.read(path, as_version=4) for path in notebook_paths([]) if path.stem not in LOOKED_UP
    }
    minutes = {path.stem: measure_notebook(book).minutes for path, book in books.items()}
    readme = with_all_minutes(README.read_text(encoding="utf-8"), minutes)
    for book in books.values():
        for cell in book.cells:
            if "**The short way**" in cell.source:
                cell.source = with_all_minutes(cell.source, minutes)
        book.cells[0].source = with_minutes(book.cells[0].source, measure_notebook(book))
    return {README: readme} | {path: nbformat.writes(book) + "\n" for path, book in books.items()}


def main() -> None:
    """Print the table. With --write, write the minutes."""
    arguments = argument_parser(__doc__)
    arguments.add_argument("names", nargs="*", help="beginnings of file names (default: all)")
    arguments.add_argument("--write", action="store_true", help="write the minutes wherever they appear")
    options = arguments.parse_args()
    names = Sizes._fields
    print(" ".join(f"{name:>15}" for name in names))
    for path in (path for path in notebook_paths(options.names) if path.stem not in LOOKED_UP):
        measured = measure_notebook(nbformat.read(path, as_version=4))
        row = " ".join(f"{getattr(measured, name):>15,}" for name in names)
        print(
            row,
            format_minutes(measured.minutes),
            path.stem,
            "|",
            "; ".join(measured.exceeded(limits_of_notebook(path.stem))),
        )
    for path, text in texts_with_current_minutes().items() if options.write else ():
        path.write_text(text, encoding="utf-8", newline="\n")
