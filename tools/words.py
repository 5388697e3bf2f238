"""Make the glossary, notebooks/words.ipynb: `python -m tools words`.

The terms and their meanings are defined in tools/data/words.txt, one per line. After a term, `(here row)`
gives a shorter name that the notebooks use, and `(also prompt processing)` gives a synonym.

A notebook introduces a term where the term is in bold; the glossary links to that cell. "|" separates the
forms that may be bold. Plurals, and bold texts that end with "is called" and a term, are also found. The
terms in the group "Names that others use" are found even if they are not bold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import nbformat
from nbformat import NotebookNode

from tools.launch import DATA, ROOT, argument_parser
from tools.notebooks import normalize_notebook

PAGE = ROOT / "notebooks" / "words.ipynb"
MEANINGS = DATA / "words.txt"
NAMES_OTHERS_USE = "Names that others use"  # a group in words.txt
BOLD = re.compile(r"\*\*([^*\n]+)\*\*")
Groups = dict[str, dict[str, str]]

MIXED_UP = {
    "token processed": ("Work: a token goes through the model. Run again, it counts again.", "position"),
    "position": (
        "A place: where a token stands in its text. It has one, however often it runs.",
        "token processed",
    ),
    "query": ("A list of numbers that a token makes in order to look.", "a prompt"),
    "prompt": ("The text that you give to the model.", "query"),
    "pass": ("One run of the model, over one token or many.", "token processed"),
    "weights": ("A model's learned numbers.", "attention weights"),
    "attention weights": ("How much a token takes from each token that it sees.", "weights"),
}

PYTORCH = {
    "`torch.tensor([[10.0, 20.0]])`": "`np.array`, with 4 bytes a number",
    "`x.mean(dim=1)`": "`x.mean(axis=1)`; `dim=-1` is the last axis",
    "`x[0, 1].item()`": "`x[0, 1]` as a plain number",
    "`x @ y.T`": "the same: a product of matrices, the second one transposed",
    "`x.softmax(dim=-1)`": "softmax along the last axis",
    "`x.masked_fill(mask, 0)`": "`np.where(mask, 0, x)`",
    "`torch.cat([x, y], dim=0)`": "`np.concatenate`",
    "`x.unflatten(-1, (4, 32))`, `x.flatten(2)`": "`x.reshape`: one axis into two, several into one",
    "`with torch.no_grad():`": "nothing is to be learned here, so PyTorch keeps no notes for training",
}


def read_glossary(path: Path = MEANINGS) -> Groups:
    """Read the glossary's terms and their meanings, as {group: {entry: meaning}}.

    An entry is the text before the colon, with all forms, short names and synonyms of the term. The functions
    below call it `word`.

    Raises:
        ValueError: a term is defined twice.
    """
    groups: Groups = {}
    seen: set[str] = set()
    for row in filter(None, path.read_text(encoding="utf-8").splitlines()):
        if row.startswith("## "):
            group = groups.setdefault(row[3:], {})
            continue
        word, meaning = row.split(": ", 1)
        if repeated := seen & {form.lower() for form in bold_forms(word)}:
            raise ValueError(f"{path.name} defines {repeated.pop()!r} twice; expected one meaning per word")
        seen |= {form.lower() for form in bold_forms(word)}
        group[word] = meaning
    return groups


def bold_forms(word: str) -> list[str]:
    """Return the forms of a term that may be bold in a notebook.

    The first one is shown in the glossary. The short name, if the entry has one, comes last.
    """
    return [*word.partition(" (")[0].split("|"), *short_names(word)]


def other_terms(word: str) -> list[str]:
    """Return the synonyms of a term, which follow "also" in its entry."""
    return [name for names in re.findall(r"\(also ([^;)]*)", word) for name in names.split(", ")]


def short_names(word: str) -> list[str]:
    """Return a list with the short name that the notebooks use for a term, or an empty list."""
    return re.findall(r"\bhere (\w+)\)$", word)


def bold_pattern(word: str) -> re.Pattern[str]:
    """Return a pattern for bold texts that name this term.

    It matches a form of the term or its plural. "is called" and other words may precede the form.
    """
    either = "|".join(map(re.escape, bold_forms(word)))
    return re.compile(rf"(?:.* is called (?:an? |the )?)?(?:{either})(?:s|es)?", re.IGNORECASE)


class BoldText(NamedTuple):
    """A text that is bold in a notebook, with the notebook's name and the id of the cell."""

    text: str
    notebook: str
    cell_id: str


class CellLocation(NamedTuple):
    """The location of a cell: the name of its notebook, and the cell's id."""

    notebook: str
    cell_id: str


def bold_texts(folder: Path) -> list[BoldText]:
    """Return every bold text in the notebooks of a folder, in reading order.

    The terms in the group NAMES_OTHERS_USE are included for each cell in which they appear, bold or not.
    """
    found = []
    others = [name for word in read_glossary()[NAMES_OTHERS_USE] for name in bold_forms(word)]
    for path in sorted(folder.glob("[0-9A]*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                named = [name for name in others if re.search(rf"\b{name}\b", cell.source)]
                found += [BoldText(text, path.stem, cell.id) for text in BOLD.findall(cell.source) + named]
    return found


def first_bold_cells(word: str, texts: list[BoldText]) -> Iterator[CellLocation]:
    """Yield the first cell with the term in bold, for each notebook that has such a cell."""
    cells: dict[str, str] = {}
    for text, notebook, cell in texts:
        if bold_pattern(word).fullmatch(text.strip(" .,:;")):
            cells.setdefault(notebook, cell)
    yield from (CellLocation(*item) for item in cells.items())


def table_row(word: str, meaning: str, texts: list[BoldText]) -> str:
    """Return a term's row in the glossary's Markdown table.

    It has the term with its other names, the meaning, and links to the notebooks that have the term in bold.
    """
    name, *more = bold_forms(word)
    short = f" ({more[0]})" if more and more[0].isupper() else ""
    names = ["also " + ", ".join(other_terms(word))] * bool(other_terms(word))
    names += [f"here *{short_form}*" for short_form in short_names(word)]
    links = [
        f"[{notebook.split('_')[0]}]({notebook}.ipynb#cell-id={cell})"
        for notebook, cell in first_bold_cells(word, texts)
    ]
    return f"| **{', '.join([f'{name}**{short}', *names])} | {meaning} | {', '.join(links)} |"


def glossary_cells(texts: list[BoldText]) -> Iterator[str]:
    """Yield the Markdown of each cell of the glossary notebook.

    After an introduction come a table of terms that are easily confused, a table of PyTorch expressions with
    their NumPy equivalents, and a table for each group of terms.

    Args:
        texts: the bold texts of all notebooks.
    """
    n = sum(map(len, read_glossary().values()))
    yield (
        f"# Words\n\nNearly every word of the series has one meaning. Here are all {n}. The field's term "
        "leads; behind it stand other names that you may meet, and the shorter one that we use *here*. "
        "The number leads to the cell that introduces the word. Where several numbers stand, later notebooks "
        "tell more."
        "\n\nThe way through: [00](00_start_here.ipynb)."
    )
    lines = [f"| **{word}** | {meaning} | {other} |" for word, (meaning, other) in MIXED_UP.items()]
    yield "\n".join(
        ["## Easily mixed up", "", "| word | what it is | what it is not |", "|---|---|---|", *lines]
    )
    lines = [f"| {torch} | {numpy} |" for torch, numpy in PYTORCH.items()]
    yield "\n".join(["## PyTorch, for who knows NumPy", "", "| PyTorch | in NumPy |", "|---|---|", *lines])
    for group, words in read_glossary().items():
        lines = [table_row(word, meaning, texts) for word, meaning in words.items()]
        yield "\n".join([f"## {group}", "", "| word | what it means | notebook |", "|---|---|---|", *lines])


def glossary_notebook(folder: Path) -> NotebookNode:
    """Return the glossary as a notebook, with links to the notebooks in `folder`."""
    new = nbformat.v4
    cells = [
        new.new_markdown_cell(text, id=f"words-{n:02}")
        for n, text in enumerate(glossary_cells(bold_texts(folder)))
    ]
    result = new.new_notebook(cells=cells)
    normalize_notebook(result)
    return result


def main() -> None:
    """Write the glossary notebook, notebooks/words.ipynb."""
    argument_parser(__doc__).parse_args()
    nbformat.write(glossary_notebook(PAGE.parent), PAGE)
