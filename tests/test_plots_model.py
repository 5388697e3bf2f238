"""The figures of Part II show the numbers they are given, whole and legible, and say the same in words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from draw_pictures import residual_stream
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Polygon

from helpers import plots
from helpers.cost.models import MODELS
from helpers.plots import canvas, measured
from helpers.plots.svg import PALETTE
from tests.machine import ROOT
from tests.pictures import boxes, check_form, curves, words

T, S = 2, 6
RIGHT = np.tril(np.ones((T, S), dtype=bool), S - T)
APPLIED = np.tril(np.ones((T, S), dtype=bool))
OWN, CAUSAL = np.eye(5, dtype=bool), np.tri(5, dtype=bool)
MOVES = {"norm": OWN, "projection": OWN, "rotation": OWN, "attention": CAUSAL, "MLP": OWN}
LOSSES = [0.9 + 4.3 * math.exp(-n / 60) + 0.1 * math.sin(n * n) for n in range(1500)]
CONTEXTS = [1, 8, 64, 256, 1024]
TIMES = {
    "without the cache": [1.3, 2.1, 6.5, 14.2, 39.8],
    "with the growing one": [1.2, 1.3, 1.6, 2.2, 4.0],
    "with the preallocated one": [1.1, 1.2, 1.3, 1.5, 2.0],
}
GROWING, STATIC = list(range(5, 65)), [1] * 60
CLOUDS = {
    "float64": ([1e-14, 2e-14, 1e-14], [0.02, 1.0, 12.0]),
    "float32": ([1e-6, 2e-6, 4e-6], [0.02, 1.0, 12.0]),
    "bfloat16": ([0.03, 0.06, 0.03], [0.0, 0.12, 12.0]),
}
NAMES = ["GPT-2 small", "SmolLM2-135M", "Llama-2-7B", "Llama-3.1-8B", "Llama-3.1-70B", "Qwen1.5-72B"]
WINDOWED = ["Mistral-7B v0.1", "gpt-oss-120b"]
BYTES = [(name, MODELS[name].cache_nbytes_per_token()) for name in NAMES]
SPEEDS = [1.0, 0.1, 0.001]

PICTURES: dict[str, Callable[[], plots.Picture]] = {
    "masks": lambda: plots.mask_pair(APPLIED, RIGHT, ["5", "6"], [str(n) for n in range(1, 7)]),
    "masks, 8 by 8": lambda: plots.mask_pair(
        np.tri(8) > 0, np.tri(8) > 0, list("12345678"), list("12345678")
    ),
    "streams": residual_stream,
    "moves": lambda: plots.who_moves(MOVES),
    "moves, 6": lambda: plots.who_moves({f"operation {n}": CAUSAL for n in range(6)}),
    "moves, 1 token": lambda: plots.who_moves({"norm": np.eye(1), "nothing": np.zeros((1, 1))}),
    "clocks": lambda: plots.clock_hands(SPEEDS, [3, 7], query=8),
    "clocks, many": lambda: plots.clock_hands(SPEEDS, range(8), query=8),
    "loss": lambda: plots.loss_curve(LOSSES, level=math.log(185)),
    "loss, rises": lambda: plots.loss_curve([0.0, 0.0, 3.0, 4.0, 5.0], level=1.0),
    "time": lambda: plots.time_per_token(CONTEXTS, TIMES, "one more token"),
    "time, equal ends": lambda: plots.time_per_token([1, 2], {name: [1.0, 1.0] for name in "abcd"}, "x"),
    "time, zeros": lambda: plots.time_per_token([1, 2], {"a": [0.0, 0.0]}, "w" * 200),
    "rows": lambda: plots.copied_rows(GROWING, STATIC),
    "rows, 1 step": lambda: plots.copied_rows([5], [1]),
    "margins": lambda: plots.margins(CLOUDS),
    "margins, all 0": lambda: plots.margins({"a": ([0.0], [0.0]), "b": ([1e-3], [0.0])}),
    "bytes": lambda: plots.cache_bytes(BYTES, 128_000),
    "by tokens": lambda: plots.rows_by_tokens([MODELS[name] for name in (*NAMES[1:4], *WINDOWED)]),
    "by tokens, 1": lambda: plots.rows_by_tokens([MODELS["DeepSeek-V3"]]),
}


@cache
def picture_of(name: str) -> plots.Picture:
    return PICTURES[name]()


def both(name: str) -> list[Any]:
    """The two layouts of a figure."""
    return [picture_of(name).figure, picture_of(name).narrow]


@pytest.mark.parametrize("name", PICTURES)
def test_it_is_legible_themed_small_and_the_same_each_time(name: str) -> None:
    check_form(picture_of(name), PICTURES[name]())


def test_masks_are_drawn_cell_by_cell() -> None:
    picture = picture_of("masks")
    assert picture.numbers == {"applied": [1, 2], "right": [5, 6], "different": 8}
    for figure in both("masks"):
        assert len(boxes(figure, "query")) == 1 + 2 + 5 + 6
        assert words(figure).count("×") == 24 - 14
        outlined = [box for box in figure.findobj(FancyBboxPatch) if box.get_linewidth() > 1.5]
        assert len(outlined) == 8 + 1  # and the one that explains them
        assert {"sees 1", "sees 2", "sees 5", "sees 6", "wrong: 8 cells"} <= set(words(figure))
    assert "query 5 may look at key 1, and needs keys 1, 2, 3, 4 and 5;" in picture.alt
    assert picture_of("masks, 8 by 8").numbers["different"] == 0


def heads(figure: Any, colour: str) -> list[Polygon]:
    """Heads of the arrows of this colour."""
    found = [p for p in figure.findobj(Polygon) if type(p) is Polygon]
    return [p for p in found if to_hex(p.get_facecolor()) == PALETTE[colour][0]]


def test_only_keys_and_values_cross_from_stream_to_stream() -> None:
    for figure in both("streams"):
        assert (len(heads(figure, "key")), len(heads(figure, "value"))) == (6, 6)  # each to every later one
        thick = [line for line in figure.findobj(Line2D) if line.get_linewidth() == 5]
        streams = {line.get_xdata()[0] for line in thick if line.get_xdata()[0] == line.get_xdata()[1]}
        assert len(streams) == 4
        crossing = {
            line.get_color()
            for line in figure.findobj(Line2D)
            if any(min(line.get_xdata()) < x - 8 and max(line.get_xdata()) > x + 8 for x in streams)
        }
        assert crossing == {"key", "value"}
        expected = {"norm": 12, "attention": 4, "MLP": 4, "readout": 4, "nice": 1}
        assert {name: words(figure).count(name) for name in expected} == expected


def test_stream_says_the_sizes_of_the_shipped_model() -> None:
    config = json.loads((ROOT / "helpers/weights/config.json").read_text(encoding="utf-8"))
    picture, told = picture_of("streams"), set(words(picture_of("streams").narrow))
    sizes = {"n_layers": config["num_hidden_layers"], "hidden_size": config["hidden_size"]}
    assert picture.numbers == sizes == {"n_layers": 4, "hidden_size": 128}
    assert {"the first of 4 blocks", "a residual stream: 128 numbers"} <= told
    assert "128 numbers. A block adds to each stream twice, and so do the other 3 blocks:" in picture.alt


def test_who_moves_counts_and_colours_what_crosses() -> None:
    picture = picture_of("moves")
    assert picture.numbers == {"norm": 5, "projection": 5, "rotation": 5, "attention": 15, "MLP": 5}
    for figure in both("moves"):
        assert (len(boxes(figure, "query")), len(boxes(figure, "soft"))) == (10 + 1, 25 + 1)  # 1 explains
        assert words(figure).count("own line only") == 4
        assert words(figure).count("other lines too") == 1
    assert "attention 15 (the triangle up to the diagonal)" in picture.alt
    assert "norm 5 (the diagonal only)" in picture.alt


def test_who_moves_shows_a_planted_fault_where_it_is() -> None:
    moved = OWN.copy()
    moved[0, 4] = True  # the last token reaches the first row
    picture = plots.who_moves({"norm": moved})
    (_, cell), (_, *own) = boxes(picture.figure, "query"), boxes(picture.figure, "soft")
    assert cell.get_y() == min(box.get_y() for box in own)
    assert cell.get_x() == max(box.get_x() for box in own)
    assert picture.numbers == {"norm": 6}


def test_hands_turn_clockwise_from_the_top_by_their_speed() -> None:
    picture = picture_of("clocks")
    assert picture.numbers["angles"] == [[3, 7], [0.3, 0.7], [0.003, 0.007]]
    expected = [[round(math.cos(r * (8 - p)), 2) for p in (3, 7)] for r in SPEEDS]
    assert picture.numbers["cosines"] == expected
    for figure in both("clocks"):
        hands = [line for line in figure.findobj(Line2D) if line.get_color() == "key"]
        ends = [np.subtract(*np.array(line.get_xydata())[::-1]) for line in hands]
        turned = [math.atan2(x, -y) % (2 * math.pi) for x, y in ends]
        assert turned == pytest.approx([a % (2 * math.pi) for row in picture.numbers["angles"] for a in row])
        assert {"cos to 3: 0.28", "cos to 7: 0.54", "a round: 6.3 positions"} <= set(words(figure))
    assert words(picture_of("clocks, many").figure).count("0–7") == 2  # the slow ones' hands lie together


def test_loss_curve_says_where_it_starts_and_ends() -> None:
    picture, end = picture_of("loss"), float(np.median(LOSSES[-20:]))
    assert picture.numbers == {"first": round(LOSSES[0], 2), "last": round(end, 2)}
    assert picture.alt.startswith(f"The loss of 1,500 steps falls from 5.2 to {end:.2f}.")
    assert picture.alt.endswith(" A dashed line at ln V = 5.2: a model that has learned nothing.")
    assert plots.loss_curve([1.0, 1.0, 2.0, 2.0], 3.0).alt.startswith("The loss of 4 steps goes from 1.0 to")
    for figure in both("loss"):
        assert {f"{end:.2f}", "learned nothing: ln V = 5.2"} <= set(words(figure))
        (line,) = curves(figure)
        smooth = np.array(measured.moving_median(LOSSES, 12))
        at = np.array(line.get_xdata(), dtype=int) - 1
        assert np.asarray(line.get_ydata()) == pytest.approx(smooth[at])
        (band,) = [patch for patch in figure.findobj(Polygon) if len(patch.get_xy()) > 99]
        assert (band.get_xy()[:, 1].min(), band.get_xy()[:, 1].max()) == (min(LOSSES), max(LOSSES))


def test_moving_median_does_not_lag() -> None:
    falling = [float(n) for n in range(50, 0, -1)]
    assert measured.moving_median(falling, 5) == falling
    assert measured.moving_median([1.0, 9.0, 1.0, 1.0], 1) == [1, 1, 1, 1]


def test_times_are_drawn_over_a_logarithmic_axis_and_named() -> None:
    picture = picture_of("time")
    assert picture.numbers == {"at": CONTEXTS, **TIMES}
    for figure in both("time"):
        assert {*TIMES, "40 ms", "4.0 ms", "2.0 ms", "1", "10", "100", "1,000"} <= set(words(figure))
        assert figure.axes[0].child_axes[0].get_xscale() == "log"
        assert [list(line.get_ydata()) for line in curves(figure)] == list(TIMES.values())
        assert [list(line.get_xdata()) for line in curves(figure)] == [CONTEXTS] * 3
    assert "with the growing one: 1.2 at 1, 1.3 at 8, 1.6 at 64, 2.2 at 256, 4.0 at 1,024" in picture.alt


def test_rows_copied_are_counted() -> None:
    picture = picture_of("rows")
    assert picture.numbers["totals"] == {"growing": 2070, "preallocated": 60}
    for figure in both("rows"):
        assert {"2,070", "60"} <= set(words(figure))
        patches = [patch for axes in figure.axes[0].child_axes for patch in axes.patches]
        assert [patch.get_data()[0].tolist() for patch in patches] == [GROWING, STATIC, STATIC, STATIC]
    assert "writes 5 in the first and 64 in the last, 2,070 in all" in picture.alt


def test_margins_count_the_tokens_that_may_differ_and_say_which_have_no_dot() -> None:
    picture = picture_of("margins")
    assert picture.numbers == {"float64": 0, "float32": 0, "bfloat16": 2}  # 0.12 is twice 0.06: at most
    for figure in both("margins"):
        told = ("0 may differ", "2 may differ", "1 at 0, no dot")
        assert [words(figure).count(text) for text in told] == [2, 1, 1]
        dots = [line for line in curves(figure) if line.get_marker() == "o"]
        assert [list(line.get_xdata()) for line in dots] == [[0.02, 1, 12], [0.02, 1, 12], [0.12, 12]]
        assert [list(line.get_ydata()) for line in dots][2] == [0.06, 0.03]
        line = curves(figure)[-1]
        assert np.array(line.get_xdata()) == pytest.approx(2 * np.array(line.get_ydata()))
    assert "bfloat16: 2 of 3 tokens (1 at a margin or difference of 0, without a dot)" in picture.alt


def test_cache_bytes_are_the_table_of_the_notebook() -> None:
    picture, expected = picture_of("bytes"), [4.39, 2.75, 62.5, 15.62, 39.06, 312.5]
    assert list(picture.numbers.values()) == pytest.approx(expected, abs=0.006)
    for figure in both("bytes"):
        told = {"4.39 GiB", "39.1 GiB", "312.5 GiB", "22.5 KiB a token", "320 KiB a token"}
        assert told <= set(words(figure))
        for fill in ("key fill", "value fill"):
            widths = np.array([box.get_width() for box in boxes(figure, fill)])
            assert widths / max(widths) == pytest.approx(np.array(expected) / 312.5, abs=1e-3)


def test_rows_by_tokens_bend_at_the_window_and_mark_the_weights() -> None:
    picture = picture_of("by tokens")
    heavy = {"SmolLM2-135M": 11_677, "Llama-2-7B": 25_706, "Llama-3.1-8B": 122_533}
    assert picture.numbers["heavy"] == heavy | dict.fromkeys(WINDOWED)
    for figure in both("by tokens"):
        mistral, thin, gpt = [line for line in curves(figure) if line.get_marker() != "o"][-4:-1]
        assert mistral.get_linewidth() > 2 * thin.get_linewidth()
        at = {line: dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in (mistral, gpt)}
        assert at[mistral][2048] < at[mistral][4096] == at[mistral][16384] == 4096 * 128 * 1024
        assert at[gpt][128] == 128 * 72 * 1024
        assert at[gpt][256] - at[gpt][128] == 128 * 36 * 1024
        dots = [line for line in curves(figure) if line.get_marker() == "o"]
        assert [list(line.get_xdata()) for line in dots] == [[n] for n in heavy.values()]
    flat = "Mistral-7B v0.1: 1,280 KiB at 10 tokens, 0.500 GiB at 1,000,000, fewer than the weights"
    assert flat in picture.alt
    assert picture.alt.count("more than it can read") == 2


@pytest.mark.parametrize("places", [[10.0] * 3, [300.0, 299.0, 298.0], [50.0, 250.0], [90.0, 100.0, 95.0]])
def test_names_at_the_ends_of_lines_keep_their_order_and_their_room(places: list[float]) -> None:
    moved = canvas.apart(places, 40, 30, 300)
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    assert all(moved[b] - moved[a] >= 40 for a, b in pairwise(order))
    assert all(30 <= y <= 300 for y in moved)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.who_moves({}), r"matrices of shapes \[\]"),
        (lambda: plots.who_moves({"a": np.eye(2), "b": np.eye(3)}), r"\(2, 2\), \(3, 3\)"),
        (lambda: plots.who_moves({"a": np.eye(9)}), "T from 1 to 8"),
        (lambda: plots.loss_curve([1.0], 2.0), "1 losses; expected at least 2"),
        (lambda: plots.loss_curve([1.0, math.nan], 2.0), "losses are .*nan.; expected some finite numbers"),
        (lambda: plots.time_per_token([0, 1], {"a": [1.0, 1.0]}, "x"), "that grow from over 0"),
        (lambda: plots.time_per_token([1, 2], {"a": [1.0, -1.0]}, "x"), "a are .*; expected 2 finite"),
        (lambda: plots.rows_by_tokens([]), "0 models; expected 1 to 6"),
        (lambda: plots.margins({}), "0 number formats; expected 1 to 4"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
