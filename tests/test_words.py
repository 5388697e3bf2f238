"""Every word has one meaning, a cell that introduces it, and is used with this meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.machine import NOTEBOOKS, ROOT, prose_of
from tools import words
from tools.sizes import FENCED

WORDS = {word: meaning for group in words.read_glossary().values() for word, meaning in group.items()}
CELL = re.compile(r"\]\((?:notebooks/)?(\w+)\.ipynb#cell-id=([\w-]+)\)")

# Phrases that contradict words.txt.
CONTRADICTIONS = {
    "a token processed is work, a position is a place": (
        r"\bpositions? (?:that |which )?(?:are |is |were |was |to be )?run\b",
        r"\brun(?:s|ning)? (?:\w+ )?(?:\w+ )?positions?\b",
    ),
    "a query is a list of numbers, no token and no prompt": (
        r"\(the \*{0,2}query\b|\bis a query\b|\beach query with each token\b",
        r"\b(?:your|user'?s?|users'?) quer(?:y|ies)\b|\bquery (?:prompt|text)\b",
    ),
}


@cache
def cells_of(notebook: str) -> set[str]:
    """Return the ids of a notebook's cells."""
    return {cell.id for cell in nbformat.read(ROOT / "notebooks" / f"{notebook}.ipynb", as_version=4).cells}


def contradictions(text: str) -> Iterator[str]:
    """Yield each phrase that uses a word with another meaning."""
    for rule, phrases in CONTRADICTIONS.items():
        yield from (f"{found}: {rule}" for found in re.findall("|".join(phrases), FENCED.sub("", text)))


def test_the_glossary_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    """To write it: python -m tools words."""
    written: list[Any] = []
    monkeypatch.setattr(nbformat, "write", lambda *given: written.append(given))
    monkeypatch.setattr("sys.argv", ["words"])
    words.main()
    assert written == [(nbformat.read(words.PAGE, as_version=4), words.PAGE)]


def test_each_word_has_one_meaning(tmp_path: Path) -> None:
    assert len(WORDS) > 90
    for word, meaning in WORDS.items():
        assert re.fullmatch(r"[A-Z][^.]*\.", meaning.replace("llama.cpp", "")), word
        assert len(meaning.split()) <= 30, word
    path = tmp_path / "words.txt"
    path.write_text("## A\nrow: One.\n\n## B\nline|Row: Another.\n")
    with pytest.raises(ValueError, match="defines 'row' twice; expected one"):
        words.read_glossary(path)


def test_confusable_words_are_in_the_glossary() -> None:
    names = {name for word in WORDS for name in words.bold_forms(word)} | {"position", "a prompt"}
    assert {*words.MIXED_UP} | {other for _, other in words.MIXED_UP.values()} <= names


def test_every_word_is_bold_somewhere() -> None:
    places = words.bold_texts(ROOT / "notebooks")
    assert [word for word in WORDS if not list(words.first_bold_cells(word, places))] == []


def test_first_bold_cell_introduces_a_word() -> None:
    places = [
        words.BoldText("Rows.", "00_a", "c1"),
        words.BoldText("rows of", "00_a", "c2"),
        words.BoldText("row", "01_b", "c3"),
        words.BoldText("ROW", "01_b", "c4"),
    ]
    assert dict(words.first_bold_cells("line|row", places)) == {"00_a": "c1", "01_b": "c3"}


def test_a_row_shows_all_names_of_a_word() -> None:
    places = [
        words.BoldText("rows", "04_kv", "c4"),
        words.BoldText("KV entry", "05_b", "c5"),
        words.BoldText("past", "06_c", "c6"),
    ]
    line = words.table_row("KV entry|KVE (also past, key; here row)", "One.", places)
    links = "[04](04_kv.ipynb#cell-id=c4), [05](05_b.ipynb#cell-id=c5)"
    assert line == f"| **KV entry** (KVE), also past, key, here *row* | One. | {links} |"


def test_common_search_terms_are_in_the_glossary() -> None:
    """Newcomers search for all of these."""
    names = {name for word in WORDS for name in (*words.bold_forms(word), *words.other_terms(word))}
    asked = (
        "prompt processing, KV entry, VRAM, past_key_values, autoregressive, decoder-only, encoder-decoder, "
    )
    asked += "T5, BERT, self-attention, memory wall, in-flight batching, FlashAttention, unembedding"
    assert {*asked.split(", ")} <= names


@pytest.mark.parametrize("path", [*NOTEBOOKS, ROOT / "README.md"], ids=lambda path: path.stem)
def test_notebooks_use_words_with_their_meaning(path: Path) -> None:
    assert list(contradictions(prose_of(path))) == []


@pytest.mark.parametrize(
    "text",
    [
        "60 positions run",
        "it runs all four positions again",
        "a token that looks (the **query**)",
        "A line is a query.",
        "your query is answered",
    ],
)
def test_contradictions_are_found(text: str) -> None:
    assert len(list(contradictions(text))) == 1


@pytest.mark.parametrize("path", [*NOTEBOOKS, ROOT / "README.md"], ids=lambda path: path.stem)
def test_links_to_cells_exist(path: Path) -> None:
    """In JupyterLab and on the published pages; GitHub opens the notebook at its top."""
    for notebook, cell in CELL.findall(prose_of(path)):
        assert cell in cells_of(notebook), f"{notebook} has no cell {cell}"
