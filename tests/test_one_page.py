"""The model on one page is the one of the series: its cells, run here, against `helpers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from helpers.model import shipped
from helpers.recording.diary import load_diary

PAGE = Path(__file__).parents[1] / "notebooks" / "one_page.ipynb"
TAUGHT = ("one-files", "one-functions", "one-run", "one-write", "one-go")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's five cells define."""
    cells = {cell.id: cell.source for cell in nbformat.read(PAGE, as_version=4).cells}
    names: dict[str, Any] = {}
    for name in TAUGHT:
        exec(cells[name], names)
    return names


def test_sixty_lines_that_import_nothing_of_helpers() -> None:
    code = "\n".join(cell.source for cell in nbformat.read(PAGE, as_version=4).cells if cell.id in TAUGHT)
    assert len([line for line in code.splitlines() if line.strip()]) <= 60
    assert "import helpers" not in code
    assert "from helpers" not in code


@torch.inference_mode()
def test_its_logits_are_those_of_helpers(page: dict[str, Any]) -> None:
    model, tokenizer = shipped.load_shipped()
    tokens = [token.id for token in load_diary().sequences[0].tokens if token.id is not None]
    assert page["tokens_of"](tokenizer.decode(tokens)) == tokens
    expected = model(torch.tensor([tokens]))[0].numpy()
    for cuts in ([23, *range(24, 47)], [7, 30, 46]):  # a prompt and words; three chunks
        cache = page["empty"]()
        for start, stop in zip([0, *cuts], cuts, strict=False):
            logits = page["run"](tokens[start:stop], start, cache)
            assert logits == pytest.approx(expected[stop - 1], abs=1e-4)


def test_the_cache_changes_the_work_and_not_the_words(page: dict[str, Any], capsys: Any) -> None:
    for temperature in (0.5, 2.0):
        printed = []
        for cached in (True, False):
            page["write"](page["DIARY"], 9, cached, temperature, seed=1)
            printed.append(capsys.readouterr().out.splitlines())
        assert printed[0][0] == printed[1][0]
        assert printed[0][1] == "(31 tokens processed)"
        assert printed[1][1] == f"({sum(range(23, 32))} tokens processed)"
