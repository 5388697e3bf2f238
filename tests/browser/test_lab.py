"""Links of notebooks in a real JupyterLab."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import tools.lab
from tests.browser.lab import Lab, open_notebook, save
from tests.machine import ROOT, project_files
from tests.test_words import CELL

pytestmark = pytest.mark.browser


def test_a_link_leads_to_its_cell(lab: Lab, page: Page) -> None:
    """With its own settings JupyterLab goes there at once; with ours, once the notebook is open."""
    path = ROOT / "notebooks/words.ipynb"
    book = lab.put(path)
    notebook, cell = CELL.findall(path.read_text(encoding="utf-8"))[-1]
    shutil.copy(path.with_name(f"{notebook}.ipynb"), (lab.root / book).parent)
    open_notebook(page, lab, book)
    link = page.locator(f'a[href*="cell-id={cell}"]').first
    link.click()
    page.wait_for_function("() => window.jupyterapp.shell.currentWidget.context.path.includes('_')")
    page.locator(".lm-TabBar-tab", has_text=path.name).first.click()
    link.click()
    page.wait_for_function(
        """(id) => {
          const cells = window.jupyterapp.shell.currentWidget.content.widgets;
          const place = cells.find((one) => one.model.id === id)?.node.getBoundingClientRect();
          return place && place.bottom > 0 && place.top < window.innerHeight;
        }""",
        arg=cell,
        timeout=30_000,
    )


def test_links_open_from_the_command_of_the_readme(
    tmp_path: Path, page: Page, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook opens and is saved as git knows it; links open what they name, README its pictures.

    The terminal shows no error, of JupyterLab's scripts for node neither: these lie below our package.json.
    """
    for path in project_files():
        copy = tmp_path / "root" / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^python3 .* -m tools lab$", readme, re.MULTILINE)
    monkeypatch.setenv("PATH", str(Path(node).parent), prepend=os.pathsep)
    first = "notebooks/00_start_here.ipynb"
    lab = Lab(
        tmp_path,
        [text.replace(str(ROOT), str(tmp_path / "root")) for text in tools.lab.jupyterlab_arguments([])],
    )
    try:
        (redirect,) = tmp_path.glob("data/runtime/*file-to-run*.html")
        assert f'url={lab.url}/lab/tree/{first}"' in redirect.read_text(encoding="utf-8")
        open_notebook(page, lab, first)
        log = lab.log.read_text(encoding="utf-8")
        assert "Serving notebooks from local directory" in log
        assert not re.search(r"Traceback|Error|Warning|not defined|yarn", log), log
        save(page)
        assert (lab.root / first).read_bytes() == (ROOT / first).read_bytes()
        for link, opened, shown in (
            ("#46-or-828", first, "46 or 828"),
            ("/notebooks/01_four_heads.ipynb", "notebooks/01_four_heads.ipynb", "01 · Four heads by hand"),
            ("/helpers/recording/diary.py", "helpers/recording/diary.py", "A diary that the shipped"),
            ("/README.md", "README.md", "Watch It Decode"),
        ):
            page.locator(".lm-TabBar-tab", has_text="00_start_here.ipynb").first.click()
            selector = f'.jp-NotebookPanel:not(.lm-mod-hidden) .jp-RenderedMarkdown a[href*="{link}"]'
            page.locator(selector).first.dispatch_event("click")  # an anchor shows under the mouse only
            page.wait_for_function(
                "(path) => jupyterapp.shell.currentWidget.context?.path === path", arg=opened
            )
            expect(page.get_by_text(shown).locator("visible=true").first).to_be_in_viewport(timeout=20_000)
        page.wait_for_function(
            """() => [...jupyterapp.shell.currentWidget.node.querySelectorAll("img[src*=pictures]")]
              .filter((picture) => picture.naturalWidth).length === 3"""
        )
    finally:
        page.goto("about:blank")
        lab.stop()
