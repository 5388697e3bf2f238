"""The figures show the trace's numbers, whole and legible, and say the same in words."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import IPython.display
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

from helpers import plots, toy
from helpers.plots import canvas
from helpers.plots.passes import _shade
from helpers.recording.toy import record_toy
from helpers.trace import Pass, Run, Trace, spread
from tests.pictures import boxes, check_twins, cut_off_or_overlapping, smallest_letters, words

SHORT = record_toy(max_new=3, ban_eos=True)
NORMAL = record_toy()
LONG = record_toy(ban_eos=True)
RULES = record_toy(form="rules")
ODD = [
    "<img src=x onerror=alert(1)>",
    "$x_1^2$",
    "שלום",
    "a\u200bb\nc",
    "\U0001f600",
    "w" * 200,
    "'\"&",
    "\\frac{1}{2}",
]
ODD_TRACE = record_toy(ODD, [1e9, -1e9, 0.123456, 1e-9, 7, 99999.5, 3, 123456], max_new=2, ban_eos=True)

PICTURES: dict[str, Callable[[], plots.Picture]] = {
    "pause": lambda: plots.pause_and_drip(SHORT),
    "pause, 2 passes": lambda: plots.pause_and_drip(NORMAL),
    "pause, 8 passes": lambda: plots.pause_and_drip(LONG),
    "pause, 1 token": lambda: plots.pause_and_drip(record_toy(["so"], max_new=1)),
    "pause, odd": lambda: plots.pause_and_drip(ODD_TRACE),
    "strips": lambda: plots.row_strips(NORMAL, 3),
    "strips, last of the prompt": lambda: plots.row_strips(NORMAL),
    "strips, decode": lambda: plots.row_strips(NORMAL, 4),
    "strips, nothing to pick": lambda: plots.row_strips(NORMAL, 0),
    "strips, rules": lambda: plots.row_strips(RULES, 0),
    "strips, odd": lambda: plots.row_strips(ODD_TRACE, 7),
    "grids": lambda: plots.four_grids(NORMAL),
    "grids, rules": lambda: plots.four_grids(RULES),
    "grids, odd": lambda: plots.four_grids(ODD_TRACE),
    "grids, 1 token": lambda: plots.four_grids(record_toy(["so"])),
    "triangle, uncached": lambda: plots.triangle(LONG),
    "triangle, cached": lambda: plots.triangle(LONG, "cached"),
    "triangle, odd": lambda: plots.triangle(ODD_TRACE),
    "triangle, 1 token": lambda: plots.triangle(record_toy(["so"], max_new=1)),
    "triangle, 24 tokens": lambda: plots.triangle(record_toy(max_new=21, ban_eos=True)),
    "work": lambda: plots.work_by_pass(LONG),
    "work, 1 pass": lambda: plots.work_by_pass(record_toy(max_new=1)),
    "work, 12 passes": lambda: plots.work_by_pass(record_toy(max_new=12, ban_eos=True)),
}
# The figures of the notebooks: no letter of theirs is under 9 points (12 px) at a width of 700 px.
SHOWN = ["pause", "strips", "grids", "triangle, uncached", "triangle, cached", "work"]


@cache
def picture_of(name: str) -> plots.Picture:
    return PICTURES[name]()


def pass_of(run: Run, phase: str) -> Pass:
    return next(event for event in run.passes if event.phase == phase)


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_is_cut_off_or_lies_on_another(name: str) -> None:
    assert cut_off_or_overlapping(PICTURES[name]()) == []


@pytest.mark.parametrize("name", PICTURES)
def test_it_is_drawn_without_a_warning_and_the_same_each_time(name: str) -> None:
    check_twins(picture_of(name), PICTURES[name]())


@pytest.mark.parametrize("name", SHOWN)
def test_letters_are_large_enough(name: str) -> None:
    picture = picture_of(name)
    assert smallest_letters(picture) >= 12
    assert len(picture.png()) < 60_000


def test_a_readers_settings_change_nothing_and_stay() -> None:
    plain, made = plots.work_by_pass(LONG).png(), plots.work_by_pass(LONG)
    mine: dict[Any, Any] = {
        "text.color": "red",
        "font.size": 30,
        "axes.facecolor": "black",
        "savefig.dpi": 30,
        "hatch.linewidth": 6,
        "font.family": "serif",
    }
    with mpl.rc_context(mine):
        before = dict(mpl.rcParams)
        assert plots.work_by_pass(LONG).png() == plain
        assert made.png() == plain  # drawn under the reader's settings, made before
        assert dict(mpl.rcParams) == before


def test_pyplot_is_left_alone() -> None:
    code = "import sys, helpers.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_png_is_sharp_exact_in_colour_and_clear_at_its_corners() -> None:
    picture = plots.row_strips(NORMAL)
    image = Image.open(io.BytesIO(picture.png())).convert("RGBA")
    assert image.size == tuple(2 * round(side * canvas.DPI) for side in picture.figure.get_size_inches())
    pixels = np.asarray(image)
    assert pixels[0, 0, 3] < 20
    assert pixels[-1, -1, 3] < 20
    assert tuple(pixels[10, 10]) == (255, 255, 255, 255)
    there = {to_hex(rgb / 255) for rgb in np.unique(pixels[..., :3].reshape(-1, 3), axis=0)}
    assert {canvas.QUERY, canvas.VALUE_FILL, canvas.VALUE, canvas.PANEL, canvas.INK} <= there


def test_a_notebook_shows_the_picture_and_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def display(bundle: dict[str, Any], metadata: dict[str, Any] | None = None, raw: bool = False) -> None:
        assert raw
        shown.append((bundle, metadata or {}))

    monkeypatch.setattr(IPython.display, "display", display)
    picture = plots.row_strips(ODD_TRACE, 7)
    picture._ipython_display_()
    (image, metadata), (folded, _) = shown
    assert set(image) == {"image/png", "text/plain"}
    assert image["image/png"] == picture.png()
    assert image["text/plain"] == picture.alt
    assert metadata == {"image/png": {"width": 700}}
    assert "<img" in picture.alt
    assert "<img" not in folded["text/html"]
    assert "&lt;img src=x onerror=alert(1)&gt;" in folded["text/html"]


def test_save_writes_the_png(tmp_path: Any) -> None:
    picture = plots.four_grids(NORMAL)
    picture.save(tmp_path / "grids.png")
    assert (tmp_path / "grids.png").read_bytes() == picture.png()
    with pytest.raises(FileNotFoundError):
        picture.save(tmp_path / "nowhere" / "grids.png")


@pytest.mark.parametrize("trace", [SHORT, NORMAL, LONG, ODD_TRACE])
def test_pause_and_drip_is_as_wide_as_the_positions_run(trace: Trace) -> None:
    picture = plots.pause_and_drip(trace)
    passes = [event for event in trace.run("cached").passes if event.phase != "training"]
    positions = [event.counts["positions"] for event in passes]
    assert picture.numbers["positions"] == positions
    widths = [box.get_width() + 3 for box in boxes(picture, canvas.QUERY_FILL)]
    assert widths == pytest.approx([widths[-1] * n / positions[-1] for n in positions])
    assert picture.numbers["kept"] == [event.parts[0].kept[1] for event in passes]
    rows = passes[-1].parts[0].kept[1]
    assert len(boxes(picture, canvas.KEY_FILL)) == len(boxes(picture, canvas.VALUE_FILL)) == rows
    for n in picture.numbers["kept"]:
        assert str(n) in words(picture)


def test_a_cached_row_begins_where_its_pass_ends() -> None:
    picture = plots.pause_and_drip(SHORT)
    blocks = [box.get_x() + box.get_width() + 1.5 for box in boxes(picture, canvas.QUERY_FILL)]
    rows = [box.get_x() - 2 for box in boxes(picture, canvas.KEY_FILL)]
    assert rows == pytest.approx([blocks[0]] * 4 + blocks[1:])


def test_row_strips_shows_weights_by_area_and_the_contexts() -> None:
    picture = plots.row_strips(NORMAL, 3)
    contexts = {name: round(row["context"], 6) for name, row in picture.numbers.items()}
    assert contexts == {"even": 12.5, "newest": 5, "first": 10, "all": 9}
    squares = picture.figure.findobj(Rectangle)
    areas = [s.get_width() ** 2 for s in squares if to_hex(s.get_facecolor()) == canvas.QUERY]
    weights = [NORMAL.attention_weights(3, 0, head) for head in range(4)]
    seen = [w for row in weights for w in row if w > 0.0005]
    assert np.array(areas) / max(areas) == pytest.approx(np.array(seen) / max(seen), abs=1e-4)
    shown = words(picture)
    for text in ("12.5", "5", "10", "9", "= 0.5 × (20 + 5)", "= 0.25 × (10 + 20 + 1 + 5)", "20", "1"):
        assert text in shown
    assert shown.count("0.25") == 4


def test_row_strips_of_a_row_with_nothing_to_pick() -> None:
    for trace in (NORMAL, RULES):
        picture = plots.row_strips(trace, 0)
        assert round(picture.numbers["even"]["context"], 6) == 0
        assert "nothing to pick" in words(picture)
        assert "even: nothing to pick, context 0" in picture.alt


def test_four_grids_shows_the_table_and_both_uses() -> None:
    picture = plots.four_grids(NORMAL)
    table = np.array(list(picture.numbers["contexts"].values())).T
    assert table == pytest.approx(toy.prefill_matrix([10, 20, 1, 5]), abs=1e-6)
    assert picture.numbers["targets"] == ["weather", "is", "so", "nice"]
    assert picture.numbers["prefill"] == "nice"
    squares = picture.figure.findobj(Rectangle)
    drawn = [s for s in squares if to_hex(s.get_facecolor()) == canvas.QUERY]
    assert (
        sum(s.get_width() > 0.1 for s in drawn) == 22
    )  # 4 of even (two of them so's), 4 of newest, 4 of first, 10 of all
    assert words(picture).count("nice") == 2
    assert "10.33" in words(picture)


@pytest.mark.parametrize(("run", "total"), [("uncached", 276), ("cached", 66)])
def test_triangle_counts_what_the_recorder_counted(run: str, total: int) -> None:
    picture = plots.triangle(LONG, run)
    counted = sum(e.counts["pairs"] for e in LONG.run(run).passes if e.phase != "training")
    assert picture.numbers["total"] == counted == total
    often = [8, 8, 8, 8, 7, 6, 5, 4, 3, 2, 1] if run == "uncached" else [1] * 11
    assert picture.numbers["cells"] == [[times] * (row + 1) for row, times in enumerate(often)]
    assert str(total) in words(picture)
    digits = [int(text) for text in words(picture) if text.isdigit()]
    assert sum(digits) == total + total + sum(range(1, 12))  # the cells, the total, the columns' heads
    assert ("each cell once." in words(picture)) == (run == "cached")


def test_triangle_counts_and_does_not_compute() -> None:
    trace = copy.deepcopy(LONG)
    decode = pass_of(trace.run("uncached"), "decode").parts[0]
    decode.visible[-1] = [(1, 5)]  # as if the first token had been dropped from one query's sight
    picture = plots.triangle(trace)
    assert picture.numbers["total"] == 275
    assert picture.numbers["cells"][4] == [6, 7, 7, 7, 7]


def test_triangle_is_shaded_by_pass_or_by_count() -> None:
    for name in ("cached", "uncached"):
        run = LONG.run(name)
        new = [spread(e.parts[0].new) for e in run.passes if e.phase != "training"]
        shades = [
            {_shade(run, token, 8 - n if name == "uncached" else 1, 8)[0] for token in tokens}
            for n, tokens in enumerate(new)
        ]
        assert all(len(one) == 1 for one in shades)
        assert all(a != b for a, b in pairwise(shades))


@pytest.mark.parametrize("most", range(1, 25))
def test_digits_in_the_triangle_stand_out(most: int) -> None:
    for count in range(1, most + 1):
        fill, ink = _shade(LONG.run("uncached"), 0, count, most)
        assert canvas.contrast(fill, ink) >= 4.5


def test_work_by_pass_shows_both_runs() -> None:
    picture = plots.work_by_pass(LONG)
    assert picture.numbers["uncached"]["positions"] == [4, 5, 6, 7, 8, 9, 10, 11]
    assert picture.numbers["cached"]["positions"] == [4, 1, 1, 1, 1, 1, 1, 1]
    assert picture.numbers["uncached"]["pairs"] == [10, 15, 21, 28, 36, 45, 55, 66]
    assert picture.numbers["cached"]["pairs"] == [10, 5, 6, 7, 8, 9, 10, 11]
    assert "60 without the cache, 11 with it" in words(picture)
    assert "276 without the cache, 66 with it" in words(picture)
    solid, hatched = (
        boxes(picture, canvas.INK),
        [box for box in picture.figure.findobj(FancyBboxPatch) if box.get_hatch()],
    )
    assert (len(solid), len(hatched)) == (16, 14)
    tall = [box.get_height() for box in solid[8:]]
    assert tall == pytest.approx([150 / 66 * n for n in picture.numbers["cached"]["pairs"]])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda: plots.pause_and_drip(record_toy(max_new=10, ban_eos=True)),
            "13 positions; expected at most 12",
        ),
        (lambda: plots.row_strips(NORMAL, 5), "token 5 did not run"),
        (lambda: plots.row_strips(NORMAL, -1), "token -1 did not run"),
        (lambda: plots.row_strips(LONG, 8), "looks at 9 tokens; expected at most 8"),
        (lambda: plots.four_grids(record_toy(training=False)), "no training pass"),
        (lambda: plots.four_grids(record_toy(["so"] * 9)), "9 tokens; expected at most 8"),
        (lambda: plots.triangle(record_toy(max_new=22, ban_eos=True)), "25 tokens ran; expected at most 24"),
        (lambda: plots.work_by_pass(record_toy(max_new=13, ban_eos=True)), "13 passes; expected at most 12"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()


def test_a_missing_run_is_named() -> None:
    with pytest.raises(KeyError, match="no run named 'cached'"):
        plots.triangle(RULES, "cached")
