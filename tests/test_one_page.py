"""The model on one page is the one of the series: its cells, run here, against `helpers`."""

from __future__ import annotations

import contextlib
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from helpers.model import shipped
from helpers.recording.diary import load_diary
from tools.launch import imports_helpers, raw_url

ROOT = Path(__file__).parents[1]
CELLS = {cell.id: cell for cell in nbformat.read(ROOT / "notebooks/one_page.ipynb", as_version=4).cells}
READS = ("one-files", "one-weights")
MODEL = ("one-functions", "one-attention", "one-mlp", "one-run", "one-write", "one-go")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the page's cells define, up to its first reply."""
    names: dict[str, Any] = {}
    with contextlib.chdir(ROOT / "notebooks"):
        for name in (*READS, *MODEL):
            exec(CELLS[name].source, names)
    return names


def test_sixty_lines_and_nothing_of_helpers() -> None:
    for cells, limit in ((MODEL, 60), (READS, 26)):
        lines = "\n".join(CELLS[name].source for name in cells).splitlines()
        assert len([line for line in lines if line.strip()]) <= limit
    assert not [name for name, cell in CELLS.items() if imports_helpers(cell.source)]


def test_alone_it_fetches_the_files_of_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Colab, where neither the repository nor its files are."""

    def fetch(url: str, name: str) -> None:
        assert url.startswith(raw_url())
        shutil.copy(ROOT / url.removeprefix(raw_url()), name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(urllib.request, "urlretrieve", fetch)
    names: dict[str, Any] = {}
    for name in READS:
        exec(CELLS[name].source, names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.safetensors", "tokenizer.json"]
    assert sum(matrix.size for matrix in names["W"].values()) == 762_112


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
