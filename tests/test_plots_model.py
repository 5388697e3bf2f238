"""The figures of Part II show the numbers they are given, whole and legible, and say the same in words."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import FancyBboxPatch, Polygon

from helpers import plots
from helpers.plots import axes, canvas
from tests.pictures import boxes, check_twins, cut_off_or_overlapping, smallest_letters, texts, words

T, S = 2, 6
RIGHT = np.tril(np.ones((T, S), dtype=bool), S - T)
APPLIED = np.tril(np.ones((T, S), dtype=bool))
OWN, CAUSAL = np.eye(5, dtype=bool), np.tri(5, dtype=bool)
MOVES = {"norm": OWN, "projection": OWN, "rotation": OWN, "attention": CAUSAL, "MLP": OWN}
LOSSES = [0.9 + 4.3 * math.exp(-n / 25) + 0.1 * math.sin(n * n) for n in range(300)]
CONTEXTS = [8, 64, 256, 512, 1024]
TIMES = {"without the cache": [1.3, 2.1, 6.5, 14.2, 39.8], "with the cache": [1.1, 1.2, 1.3, 1.5, 2.0]}
GROWING, STATIC = list(range(5, 65)), [1] * 60
CLOUDS = {
    "float64": ([1e-14, 2e-14, 1e-14], [0.02, 1.0, 12.0]),
    "float32": ([1e-6, 2e-6, 4e-6], [0.02, 1.0, 12.0]),
    "bfloat16": ([0.03, 0.06, 0.03], [0.0, 0.12, 12.0]),
}
MODELS = [
    ("GPT-2 small", 36_864),
    ("SmolLM2-135M", 23_040),
    ("Llama-2-7B", 524_288),
    ("Llama-3.1-8B", 131_072),
    ("Llama-3.1-70B", 327_680),
    ("Qwen1.5-72B", 2_621_440),
]
ODD = ["$x_1^2$", "<b>", "w" * 200, "a\nb"]

SHOWN: dict[str, Callable[[], plots.Picture]] = {
    "masks": lambda: plots.mask_pair(APPLIED, RIGHT, ["5", "6"], [str(n) for n in range(1, 7)]),
    "streams": lambda: plots.residual_stream(n_layers=4, hidden_size=128),
    "moves": lambda: plots.who_moves(MOVES),
    "loss": lambda: plots.loss_curve(LOSSES, level=math.log(185)),
    "time": lambda: plots.time_per_token(CONTEXTS, TIMES, "one more token"),
    "rows": lambda: plots.copied_rows(GROWING, STATIC),
    "margins": lambda: plots.margins(CLOUDS),
    "bytes": lambda: plots.cache_bytes(MODELS, 128_000),
}
EDGES: dict[str, Callable[[], plots.Picture]] = {
    "masks, 1 by 1": lambda: plots.mask_pair(np.ones((1, 1)), np.ones((1, 1)), ["1"], ["1"]),
    "masks, 8 by 8": lambda: plots.mask_pair(np.tri(8), np.tri(8), list("12345678"), list("12345678")),
    "masks, odd": lambda: plots.mask_pair(np.zeros((4, 4)), np.ones((4, 4)), ODD, ODD),
    "streams, 1 block": lambda: plots.residual_stream(n_layers=1, hidden_size=1),
    "streams, many": lambda: plots.residual_stream(n_layers=126, hidden_size=16_384),
    "moves, 1": lambda: plots.who_moves({"attention": CAUSAL}),
    "moves, 6": lambda: plots.who_moves(MOVES | {"embedding": OWN}),
    "moves, 11": lambda: plots.who_moves({f"operation {n}": CAUSAL for n in range(11)}),
    "moves, odd": lambda: plots.who_moves(dict.fromkeys(ODD, np.ones((8, 8)))),
    "moves, 1 token": lambda: plots.who_moves({"norm": np.eye(1), "nothing": np.zeros((1, 1))}),
    "loss, 2 steps": lambda: plots.loss_curve([2.0, 1.0]),
    "loss, rises": lambda: plots.loss_curve([0.0, 0.0, 3.0, 4.0, 5.0], level=1.0),
    "loss, zero": lambda: plots.loss_curve([0.0, 0.0]),
    "loss, 50,000 steps": lambda: plots.loss_curve([12_345.0] * 50_000, level=12.0),
    "loss, marks": lambda: plots.loss_curve(LOSSES, 5.2, {"says nice": 60, "w" * 99: 290}),
    "time, equal ends": lambda: plots.time_per_token([1, 2], {name: [1.0, 1.0] for name in "abcd"}, "x"),
    "time, zeros": lambda: plots.time_per_token([1, 2], {name: [0.0, 0.0] for name in "abcd"}, "x"),
    "time, large": lambda: plots.time_per_token([1, 10**6], {"w" * 99: [1.0, 9e7]}, "w" * 200),
    "time, small": lambda: plots.time_per_token([1, 2, 3], {"a": [1e-4, 2e-4, 3e-4]}, "x"),
    "time, crowded": lambda: plots.time_per_token(list(range(1, 60)), {"a": [1.0] * 59}, "x"),
    "rows, 1 step": lambda: plots.copied_rows([5], [1]),
    "rows, 120 steps": lambda: plots.copied_rows([10_000] * 120, [1] * 120),
    "bytes, 1": lambda: plots.cache_bytes([("toy", 1)], 1),
    "bytes, large": lambda: plots.cache_bytes([("w" * 99, 10**9), ("b", 1)] * 1, 10**9),
}
PICTURES = SHOWN | EDGES


@cache
def picture_of(name: str) -> plots.Picture:
    return PICTURES[name]()


def middles(picture: plots.Picture, word: str) -> list[tuple[float, float]]:
    return [text.get_position() for text in texts(picture) if text.get_text() == word]


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


@pytest.mark.parametrize("name", SHOWN)
def test_no_text_lies_on_the_edge_of_a_box(name: str) -> None:
    """A word stands inside a box or outside it."""
    picture = PICTURES[name]()
    height = picture.figure.get_figheight() * canvas.DPI
    for text in texts(picture):
        place = text.get_window_extent()
        top, bottom = (
            height - place.y1 + 4,
            height - place.y0 - 4,
        )  # a line's extent is taller than its letters
        for box in picture.figure.findobj(FancyBboxPatch):
            left, right = box.get_x(), box.get_x() + box.get_width()
            if box.get_y() < bottom and top < box.get_y() + box.get_height():
                inside = left <= place.x0 and place.x1 <= right
                outside = place.x1 <= left or right <= place.x0
                assert inside or outside, f"{text.get_text()!r} crosses a box at {left:.0f} to {right:.0f}"


def test_plots_never_import_torch() -> None:
    code = "import sys, helpers.plots; sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_masks_are_drawn_cell_by_cell() -> None:
    picture = picture_of("masks")
    assert picture.numbers == {"applied": [1, 2], "right": [5, 6], "different": 8}
    assert len(boxes(picture, canvas.QUERY)) == 1 + 2 + 5 + 6
    assert words(picture).count("×") == 24 - 14
    outlined = [box for box in picture.figure.findobj(FancyBboxPatch) if box.get_linewidth() > 1.5]
    assert len(outlined) == 8 + 1  # and the one that explains them
    assert max(box.get_x() for box in outlined) < middles(picture, "what decode needs")[0][0]
    for text in ("sees 1", "sees 2", "sees 5", "sees 6", "wrong: 8 cells"):
        assert text in words(picture)
    assert "query 5 may look at key 1, and needs keys 1, 2, 3, 4 and 5;" in picture.alt


def test_masks_that_agree_have_nothing_outlined() -> None:
    picture = picture_of("masks, 8 by 8")
    assert picture.numbers["different"] == 0
    assert "wrong: 0 cells" in words(picture)
    assert sum(box.get_linewidth() > 1.5 for box in picture.figure.findobj(FancyBboxPatch)) == 1


def test_only_keys_and_values_cross_from_stream_to_stream() -> None:
    picture = picture_of("streams")
    streams = sorted(y for _, y in middles(picture, "embedding"))
    assert len(streams) == 4
    heads = dict.fromkeys((canvas.KEY, canvas.VALUE), 0)
    for head in picture.figure.findobj(Polygon):
        if type(head) is Polygon and to_hex(head.get_facecolor()) in heads:
            heads[to_hex(head.get_facecolor())] += 1
    assert heads == {canvas.KEY: 6, canvas.VALUE: 6}  # each to every later one
    crossing = set()
    for line in picture.figure.axes[0].lines:
        ys = np.asarray(line.get_ydata(), dtype=float)
        if any(ys.min() < y - 12 and ys.max() > y + 12 for y in streams):
            crossing.add(to_hex(str(line.get_color())))
    assert crossing == {canvas.KEY, canvas.VALUE}


def test_a_block_adds_to_each_stream_twice() -> None:
    picture = picture_of("streams")
    expected = {"norm": 12, "attention": 4, "MLP": 4, "embedding": 4, "readout": 4, "nice": 1}
    for name, times in expected.items():
        assert words(picture).count(name) == times
    streams = {y for _, y in middles(picture, "embedding")}
    circles = [p for p in picture.figure.axes[0].patches if getattr(p, "radius", 0) == 10]
    pluses = [circle.center[1] for circle in circles]  # type: ignore[attr-defined]
    assert sorted(y for y in pluses if y in streams) == sorted([*streams, *streams])
    assert len(pluses) == 8 + 1  # and the one that explains them


def test_stream_says_its_sizes() -> None:
    picture = plots.residual_stream(n_layers=3, hidden_size=96)
    assert picture.numbers == {"n_layers": 3, "hidden_size": 96}
    assert "the first of 3 blocks" in words(picture)
    assert "a token's residual stream: a list of 96 numbers" in words(picture)
    assert "96 numbers" in picture.alt
    assert "the other 2 blocks" in picture.alt
    assert "Attention is the only part that crosses between tokens" in picture.alt


def test_who_moves_counts_and_colours_what_crosses() -> None:
    picture = picture_of("moves")
    assert picture.numbers == {"norm": 5, "projection": 5, "rotation": 5, "attention": 15, "MLP": 5}
    assert (len(boxes(picture, canvas.QUERY)), len(boxes(picture, canvas.SOFT))) == (10, 25)
    assert words(picture).count("own row only") == 4
    assert words(picture).count("other rows too") == 1
    assert "attention 15 (the triangle up to the diagonal)" in picture.alt
    assert "norm 5 (the diagonal only)" in picture.alt


def test_who_moves_shows_a_planted_fault_where_it_is() -> None:
    moved = OWN.copy()
    moved[0, 4] = True  # the last token reaches the first row
    picture = plots.who_moves({"norm": moved})
    assert picture.numbers == {"norm": 6}
    (cell,), own = boxes(picture, canvas.QUERY), boxes(picture, canvas.SOFT)
    assert cell.get_y() == min(box.get_y() for box in own)
    assert cell.get_x() == max(box.get_x() for box in own)
    assert "norm 6." in picture.alt


def test_loss_curve_says_where_it_starts_and_ends() -> None:
    picture = picture_of("loss")
    end = float(np.median(LOSSES[-20:]))
    assert picture.numbers == {"first": round(LOSSES[0], 2), "last": round(end, 2)}
    assert axes.digits(end, 2) in words(picture)
    assert "a model that has learned nothing: ln V = 5.2" in words(picture)
    assert picture.alt.startswith(f"The loss of 300 steps falls from 5.2 to {axes.digits(end, 2)}.")
    assert plots.loss_curve([1.0, 1.0, 2.0, 2.0]).alt == "The loss of 4 steps goes from 1.0 to 2.0."


def test_loss_curve_is_the_losses_under_their_median() -> None:
    lines = [line for line in picture_of("loss").figure.axes[0].lines if len(line.get_xdata()) == 300]  # type: ignore[arg-type]
    raw, smooth = (np.asarray(line.get_ydata(), dtype=float) for line in lines)
    slope, start = np.polyfit(LOSSES, raw, 1)
    assert slope < 0
    assert raw == pytest.approx(slope * np.array(LOSSES) + start)
    assert np.abs(np.diff(smooth, 2)).mean() < 0.2 * np.abs(np.diff(raw, 2)).mean()


def test_moving_median_does_not_lag() -> None:
    falling = [float(n) for n in range(50, 0, -1)]
    assert axes.moving_median(falling, 5) == falling
    assert axes.moving_median([1.0, 9.0, 1.0, 1.0], 1) == [1, 1, 1, 1]


def test_times_are_drawn_to_scale_and_named() -> None:
    picture = picture_of("time")
    assert picture.numbers == {"contexts": CONTEXTS, **TIMES}
    for text in ("without the cache", "40 ms", "with the cache", "2.0 ms", "one more token", "1,024", "8"):
        assert text in words(picture)
    lines = [line for line in picture.figure.axes[0].lines if len(line.get_xdata()) == 5]  # type: ignore[arg-type]
    base = next(y for x, y in middles(picture, "0"))
    for line, y in zip(lines, TIMES.values(), strict=True):
        heights = base - np.asarray(line.get_ydata(), dtype=float)
        assert heights / heights[-1] == pytest.approx(np.array(y) / y[-1])
    assert "with the cache: 1.1 at 8, 1.2 at 64, 1.3 at 256, 1.5 at 512, 2.0 at 1,024." in picture.alt


def test_rows_copied_are_counted() -> None:
    picture = picture_of("rows")
    assert picture.numbers["totals"] == {"growing": 2070, "preallocated": 60}
    assert {"2,070", "60"} <= set(words(picture))
    new, old = boxes(picture, canvas.INK), boxes(picture, canvas.LINE)
    assert (len(new), len(old)) == (120, 60)
    one = new[0].get_height()
    assert [box.get_height() / one for box in old] == pytest.approx([n - 1 for n in GROWING])
    assert (
        "writes 5 in the first and 64 in the last, 2,070 in all; the preallocated one 1 and 1, 60"
        in picture.alt
    )


def test_margins_count_the_tokens_that_may_differ() -> None:
    picture = picture_of("margins")
    assert picture.numbers == {"float64": 0, "float32": 0, "bfloat16": 2}  # 0.12 is twice 0.06: at most
    assert [words(picture).count(told) for told in ("0 may differ", "2 may differ")] == [2, 1]
    dots = [line for line in picture.figure.axes[0].lines if line.get_marker() == "o"]
    heights = [np.asarray(line.get_ydata(), dtype=float) for line in dots]
    assert [len(ys) for ys in heights] == [3, 3, 3]
    assert heights[1].min() > heights[2].max()  # y grows downwards


def test_cache_bytes_are_the_table_of_the_notebook() -> None:
    picture = picture_of("bytes")
    expected = [4.39, 2.75, 62.5, 15.62, 39.06, 312.5]
    assert list(picture.numbers.values()) == pytest.approx(expected, abs=0.006)
    for text in (
        "4.39 GiB",
        "2.75 GiB",
        "62.5 GiB",
        "39.1 GiB",
        "312.5 GiB",
        "22.5 KiB a token",
        "320 KiB a token",
    ):
        assert text in words(picture)
    for fill in (canvas.KEY_FILL, canvas.VALUE_FILL):
        widths = [box.get_width() for box in boxes(picture, fill)]
        assert np.array(widths) / max(widths) == pytest.approx(np.array(expected) / 312.5, abs=1e-4)


@pytest.mark.parametrize("most", [0.00013, 0.9, 1, 1.06, 2.5, 5, 5.9, 39.8, 64, 99, 1e6])
def test_an_axis_has_a_few_round_numbers(most: float) -> None:
    step = axes.round_step(most)
    assert 2 <= most / step <= 5.01
    assert float(f"{step:.0e}") == pytest.approx(step)


@pytest.mark.parametrize(
    "places", [[10.0, 10.0, 10.0], [300.0, 299.0, 298.0], [50.0, 250.0], [90.0, 100.0, 95.0]]
)
def test_names_at_the_ends_of_lines_keep_their_order_and_their_room(places: list[float]) -> None:
    moved = axes.apart(places, 40, 30, 300)
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    assert all(moved[b] - moved[a] >= 40 for a, b in pairwise(order))
    assert all(30 <= y <= 300 for y in moved)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (
            lambda: plots.mask_pair(APPLIED, RIGHT.T, ["5", "6"], list("123456")),
            r"masks of \(2, 6\) and \(6, 2\)",
        ),
        (lambda: plots.mask_pair(APPLIED, RIGHT, ["5"], list("123456")), "came with 1 queries and 6 keys"),
        (lambda: plots.mask_pair(np.ones((1, 9)), np.ones((1, 9)), ["9"], list("123456789")), "at most 8"),
        (lambda: plots.residual_stream(n_layers=0), "n_layers=0"),
        (lambda: plots.residual_stream(hidden_size=-1), "hidden_size=-1"),
        (lambda: plots.who_moves({}), r"matrices of shapes \[\]"),
        (
            lambda: plots.who_moves({"a": np.ones((2, 3))}),
            r"shapes \[\(2, 3\)\]; expected one shape \(T, T\)",
        ),
        (lambda: plots.who_moves({"a": np.eye(2), "b": np.eye(3)}), r"\(2, 2\), \(3, 3\)"),
        (lambda: plots.who_moves({"a": np.eye(9)}), "T from 1 to 8"),
        (lambda: plots.loss_curve([1.0]), "1 loss; expected at least 2"),
        (lambda: plots.loss_curve([]), "losses: got nothing"),
        (lambda: plots.loss_curve([1.0, math.nan]), "losses: got nan"),
        (lambda: plots.loss_curve([2.0, 1.0], marks={"x": 3}), "'x' is at step 3; expected one from 1 to 2"),
        (lambda: plots.time_per_token([1], {"a": [1.0]}, "x"), "1 context and 1 series"),
        (lambda: plots.time_per_token([2, 1], {"a": [1.0, 1.0]}, "x"), "contexts that grow"),
        (lambda: plots.time_per_token([-1, 0], {"a": [1.0, 1.0]}, "x"), "that grow from 0 or more"),
        (lambda: plots.time_per_token([1, 2], {}, "x"), "0 series"),
        (lambda: plots.time_per_token([1, 2], {"a": [1.0]}, "x"), "a: 1 time for 2 contexts"),
        (lambda: plots.time_per_token([1, 2], {"a": [1.0, -1.0]}, "x"), "a: got -1.0"),
        (lambda: plots.copied_rows([], []), "0 and 0 steps"),
        (lambda: plots.copied_rows([5, 6], [1]), "2 and 1 steps"),
        (lambda: plots.copied_rows([5, 6], [1, 0]), "a row written in each"),
        (lambda: plots.margins({}), "0 number formats; expected 1 to 4"),
        (lambda: plots.margins({"a": ([1.0], [1.0, 2.0])}), "a: got .1,. differences and .2,. margins"),
        (lambda: plots.margins({"a": ([-1.0], [1.0])}), "a: got a number that is negative"),
        (lambda: plots.cache_bytes([], 1), "0 models"),
        (lambda: plots.cache_bytes([("a", 0)], 1), "sizes of 1 or more"),
        (lambda: plots.cache_bytes([("a", 1)], 0), "at 0 tokens"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
