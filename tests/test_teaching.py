"""Lessons, worksheets and homework: cells that lessons name exist, answers are right, solved is reported."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

from helpers.chapters import n17
from helpers.check.reader import SOLVED_FILE
from helpers.cost.models import MODELS
from tests.exercises import DETAILS, FENCE, WRONG, exercise_sources
from tests.machine import NOTEBOOKS, ROOT
from tools import collect, reset, sheets, teaching, worksheet

PARTS = re.findall(
    r"^## ((?:Lesson \d|In pairs): .+?)$(.+?)(?=^## )", teaching.teaching_text(), re.MULTILINE | re.DOTALL
)
LESSONS = [part for part in PARTS if part[0].startswith("Lesson")]
ROWS = re.compile(r"^\| (\d+) \| .+ \| (\d\d): (.+) \|$", re.MULTILINE)
new = nbformat.v4


@pytest.mark.parametrize(("name", "text"), LESSONS)
def test_a_lesson_takes_fifty_minutes(name: str, text: str) -> None:
    minutes = [int(row[0]) for row in ROWS.findall(text)]
    assert sum(minutes) == 50
    assert len(minutes) == len(re.findall(r"^\| \d", text, re.MULTILINE)), "all lines are read"
    for part in ("**Aim.**", "**They need**", "**Questions**", "**What goes wrong in class**"):
        assert part in text
    questions = re.findall(r"^\d\. .+?\? .*?(?=^\d\. |^\n)", text, re.MULTILINE | re.DOTALL)
    assert len(questions) >= 5
    assert all(re.search(r"\*[^*]+\*\s*$", one) for one in questions), "each has its answer"


def test_the_cells_of_a_lesson_have_these_headings() -> None:
    rows = [row for _, text in LESSONS for row in ROWS.findall(text)]
    assert len(LESSONS) == 3
    for _, number, link in rows:
        found = teaching.LINK.fullmatch(link)
        assert found, link
        assert found["path"].startswith(f"notebooks/{number}_")
        headings = re.findall(r"^#+ (.+)$", teaching.linked_cell(found).source, re.MULTILINE)
        assert found["text"] in headings, f"{found['path']} has no section {found['text']!r} there any more"


def text_of(path: str) -> str:
    """A notebook's cells and what stands under them."""
    cells = nbformat.read(ROOT / path, as_version=4).cells
    outputs = [out for cell in cells for out in cell.get("outputs", [])]
    shown = [out.get("text") or out.data["text/plain"] for out in outputs]
    return "\n".join([cell.source for cell in cells] + shown)


@pytest.mark.parametrize(("name", "text"), PARTS)
def test_numbers_equal_those_in_the_notebooks(name: str, text: str) -> None:
    links = list(teaching.LINK.finditer(text))
    assert all(teaching.linked_cell(link) for link in links)
    here = "\n".join(text_of(path) for path in {link["path"] for link in links})
    said = teaching.LINK.sub("", text.partition("**Questions**")[2] or text)
    for number in re.findall(r"(?<![\w.,])\d[\d,.]*\d(?!\w)", said):
        assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d])", here), number


def test_slides_show_the_stored_pictures() -> None:
    page = teaching.slides_page()
    slides = teaching.SLIDE.findall(teaching.teaching_text())
    assert len(slides) == page.count('<div class="slide">') > 12
    assert page.count("<figure><svg ") + page.count("<figure><img ") == len(slides)
    assert '="" ' not in page, "each has a text alternative"
    assert not re.search(r"(src|href)=\"(?!data:|notebooks/\w+\.html#)", page.partition("<style>")[2])
    with pytest.raises(ValueError, match="no picture"):
        teaching.stored_picture(new.new_code_cell("1"))


def test_links_of_lessons_lead_to_pages() -> None:
    result = {"index.html", "worksheet.html", "worksheet-answers.html", "card.html", "slides.html"}
    result |= sheets.sheet_pages().keys()
    page = teaching.teaching_page()
    for address in re.findall(r'href="(?!https|data:|#)([^"#]+)', page):
        assert address in result or (ROOT / address.replace("html", "ipynb")).is_file(), address


def test_answers_of_the_memory_sheet() -> None:
    """By another way than the sheet's: a pupil's sums."""
    _, message, blocks = sheets.memory_sheet()
    llama = MODELS["Llama-3.1-8B"]
    left = 80 * 2**30 - 2 * llama.n_parameters
    assert message["row"] == f"{2 * llama.n_layers * llama.n_kv_heads * llama.head_dim * 2:,}"
    assert next(line[-1] for line in blocks["fits"][2]) == left // 2**30
    assert (message["all_users"], message["longer_users"]) == (left // 2**32, left // 2**31)


def test_answers_of_the_slots_sheet() -> None:
    """By the right answers of notebook 17's exercises, and a pupil's sums."""
    _, message, blocks = sheets.serving_sheet()
    texts, size, (a, b, c, d, e, f) = sheets.LENGTHS, sheets.SIZE, sheets.REPLIES
    taken = [line[2:] for line in blocks["pages"][2]]
    n_pages = sum(-(-length // size) for length in texts.values())
    assert [*map(sum, zip(*taken, strict=True))] == [n_pages, n_pages * size - sum(texts.values())]
    first, text = (
        range(texts["C"]),
        [*range(sheets.SAME), *range(90, 90 + sheets.D - sheets.SAME)],
    )
    assert message["found"] == n17.shared_pages.right_answer([*first], text, size)
    assert message["run"] == len(text) - size * message["found"]
    assert (message["found_late"], message["run_late"]) == (0, len(text) + 1)
    assert message["steps_static"] == max(a, b, c) + max(d, e, f)
    assert message["steps_continuous"] == max(a + e, b + f, c + d)


def test_blank_sheets_hold_no_answer() -> None:
    for name, page in sheets.sheet_pages().items():
        assert ("answers" in name) == ('class="solved"' in page)
        if "answers" not in name:
            assert not re.search(r"<td>.|<u>.", page.replace("<td></td>", "").replace("<u></u>", ""))
    assert not re.search(r'<td>.|"solved">[^<]', worksheet.worksheet_page().replace("<td></td>", ""))
    walk = worksheet.worksheet_page(True)
    assert [int(n) for n in re.findall(r'<i class="solved">(\d+)</i>', walk)] == [60, 276, 0, 11, 66, 11]
    assert '<td class="solved">12.5</td><td class="solved">5</td>' in walk


def test_collect_reports_solved_exercises(tmp_path: Path) -> None:
    """Right, wrong, never ending, no Python, an end of the kernel, no notebook: each pupil has a line."""
    path = ROOT / "notebooks/05_keep_it_right.ipynb"
    right, parts = nbformat.read(path, as_version=4), exercise_sources(path)
    for cell in right.cells:
        for tag in cell.metadata.get("tags", []):
            if tag.startswith("exercise-"):
                solution = DETAILS.findall(parts[tag.removeprefix("exercise-")]["solution"])
                (cell.source,) = FENCE.findall("".join(solution))
    for folder in ("ann", "cy/.ipynb_checkpoints"):  # what Jupyter keeps counts for nobody
        (tmp_path / folder).mkdir(parents=True)
        nbformat.write(right, tmp_path / folder / path.name)
    answers = {
        "ann/00_copy": "return 1",  # of two copies the better one counts
        "ben": "return np.ones((T, S), dtype=bool)",
        "ben/05": "import os; os._exit(1)",
        "cy/05": "while True: pass",
        "eve": "import os; os._exit(1)",
        "nul": "\0",
    }
    (tmp_path / "ben").mkdir()
    for pupil, answer in answers.items():
        cells = ["from helpers.chapters import n05 as check\nimport numpy as np", f"def mask(T, S): {answer}"]
        nbformat.write(
            new.new_notebook(cells=list(map(new.new_code_cell, cells))), tmp_path / f"{pupil}.ipynb"
        )
    (tmp_path / "dot.ipynb").write_text("no notebook")
    for pupil, noted in {"ann": "05 mask", "flo": "02 change_future\n05 none"}.items():
        (tmp_path / pupil).mkdir(exist_ok=True)
        (tmp_path / pupil / SOLVED_FILE).write_text(noted)
    lines = {line.pop("student"): line for line in collect.collect_results(tmp_path, seconds=3)}
    states = {"ann": ("solved", "solved"), "ben": ("not yet",) * 2}
    states |= dict.fromkeys(("cy", "eve", "nul"), ("error", "not yet"))
    assert lines.pop("dot") == {}
    assert lines.pop("flo") == {"02 change_future": "noted"}
    assert {pupil: (line["05 mask"], line["05 reusable"]) for pupil, line in lines.items()} == states


def test_every_exercise_is_collected() -> None:
    for path in NOTEBOOKS:
        for name in exercise_sources(path):
            assert name in WRONG or collect.checker_module(collect.code_sources(path)), path.name


def test_the_last_check_of_a_notebook_counts() -> None:
    cells = ["from helpers.chapters import n05 as check", "def mask(T, S): ...", "check.mask(mask)"]
    cells += [
        "import numpy as np",
        "def mask(T, S): return np.tri(T, S, S - T, dtype=bool)",
        "check.mask(mask)",
    ]
    begin = cells[0] + "\ncheck.mask(mask)"
    assert collect.exercise_state(cells, "mask", begin, 30, cells) == "solved"


def test_unchanged_cells_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[dict[str, Any]] = []
    monkeypatch.setattr(collect, "NotebookClient", lambda book, **given: clients.append(given))
    came, own = "import torch", "def mask(T, S): return torch.ones(T, S)"
    begin = "from helpers.chapters import n05 as check"
    assert collect.exercise_state([came, own], "mask", f"{begin}\ncheck.mask(mask)", 30, [came]) == "error"
    (timeout,) = (given["timeout_func"] for given in clients)
    assert [timeout(new.new_code_cell(source)) for source in (begin, came, own)] == [300, 300, 30]


def test_only_cells_that_an_exercise_needs_run() -> None:
    cells = ["import os\nn = 1", "def f(x):\n    y = g(x)", "def g(x): return n", "y = 1 / 0", "f = 3"]
    assert collect.cells_needed_by(cells, "check.f(f)", end=4) == cells[:3]
    assert collect.defined_and_used_names("def f(:")[0] == {"def", "f"}


@pytest.mark.parametrize("git", [False, True])
def test_reset_restores_a_notebook(tmp_path: Path, git: bool) -> None:
    """Whatever a reader, or Lab's next start, does to a page: it comes back, and the reader's own stays."""
    page = tmp_path / "notebooks/03_decode.ipynb"
    page.parent.mkdir()
    page.write_text("came")
    with pytest.raises(FileNotFoundError, match="no original is kept"):
        reset.restore_notebooks("03", tmp_path)
    if git:
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (["init", "-q"], ["add", "."], [*names, "commit", "-qm", "came"]):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
        page.write_text("mine, before Lab was started")
    (page.parent / SOLVED_FILE).write_text("03 generate")
    reset.save_originals(tmp_path)
    page.write_text("mine")
    reset.save_originals(tmp_path)
    assert [path.name for path in (tmp_path / "fresh").iterdir()] == [page.name]
    (said,) = reset.restore_notebooks("03", tmp_path)
    assert page.read_text() == "came"
    assert (page.parent / said.split("Yours is ")[1].split(";")[0]).read_text() == "mine"
    assert [path.stat().st_mode & 0o222 > 0 for path in (page, tmp_path / "fresh" / page.name)] == [
        True,
        False,
    ]
    assert reset.restore_notebooks("03", tmp_path) == ["03_decode.ipynb is as it came."]
    page.unlink()
    reset.restore_notebooks("", tmp_path)
    assert page.read_text() == "came"
    with pytest.raises(FileNotFoundError, match=r"there are: .*03_decode"):
        reset.restore_notebooks("77", tmp_path)


def test_lab_keeps_fresh_copies_of_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    config = SimpleNamespace(ServerApp=SimpleNamespace(), ContentsManager=SimpleNamespace())
    monkeypatch.setattr(reset, "save_originals", lambda: calls.append(1))
    runpy.run_path(str(ROOT / "tools/lab_config.py"), {"get_config": lambda: config})
    assert calls == [1]
