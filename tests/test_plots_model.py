"""The figures of notebooks 06 to 19 show the numbers they are given, legible, and say the same in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, FancyBboxPatch, Polygon

from helpers import plots
from helpers.check.n15 import multiplications
from helpers.cost.bytes import layers_of
from helpers.drawing import canvas
from helpers.model import shipped
from helpers.plots import measured
from helpers.plots.serving import stretches
from helpers.plots.smaller import flags
from helpers.recording.clock import TimedReply
from helpers.recording.kept import Kept
from tests.pictures import boxes, check_form, curves, texts, words

OWN, CAUSAL = np.eye(5, dtype=bool), np.tri(5, dtype=bool)
MOVES = {"norm": OWN, "projection": OWN, "rotation": OWN, "attention": CAUSAL, "MLP": OWN}
LOSSES = [0.9 + 4.3 * math.exp(-n / 60) + 0.1 * math.sin(n * n) for n in range(1500)]
CONTEXTS = [1, 8, 64, 256, 1024]
TIMES = {
    "without the cache": [1.3, 2.1, 6.5, 14.2, 39.8],
    "with the growing one": [1.2, 1.3, 1.6, 2.2, 4.0],
    "with the preallocated one": [1.1, 1.2, 1.3, 1.5, 2.0],
}
SPEEDS = [1.0, 0.1, 0.001]
SIZES = [2**n for n in range(15, 30, 2)]
READ = {"threads: 1": [173e9, 132e9, 133e9, 63e9, 29e9, 28e9, 15e9, 14e9], "threads: 2": [20e9] * 8}
TOKENS = [2**n for n in range(10)]
SWEEP = [1.2, 4.8, 4.9, 5.0, 5.2, 5.5, 7.5, 13.0, 27.0, 54.0]
STEPS: dict[str, tuple[dict[str, tuple[float, float]], float]] = {
    "as it stands": ({}, 7.2),
    "all cores share each matrix": (
        {"starts": (0, 0.1), "reading": (0.1, 2.1), "arithmetic": (0.2, 1.2)},
        2.5,
    ),
    "a quarter of the bytes": (
        {
            "starts": (0, 0.1),
            "reading": (0.1, 0.6),
            "arithmetic": (0.2, 1.4),
            "rest": (1.4 - 1e-12, 2.0),
        },  # as sums come out
        2.0,
    ),
}
VARIANTS: dict[str, tuple[float, float, float]] = {
    "all rows": (2048, 0.71, 20),
    "8 bits": (651, 0.71, 20),
    "window of 64": (131, 0.82, 0),
    "16, 4 sinks": (41, 0.9, 16),
    "16 in layers 2 to 4": (537, 1.26, 20),
    "2 bits": (270, 0.71, 20),
    "yours": (543, 0.83, 19),
    "window of 16": (33, 1.49, 0),
}
CACHES = {
    "all": Kept({0: 1.0, 1: 0.0, 2: 0.0}, "Mia from Oslo"),
    "w" * 90: Kept({1: 0.92, 2: 0.08}, "Ines" * 30),
}
HEADS: dict[str, Any] = {
    name: layers_of(shipped.VARIANTS[name.lower()])[0] for name in ("MHA", "GQA", "MQA", "MLA")
}
SIXTHS = [Fraction(n, 6) for n in (3, 2, 1)]
FORKED = np.array(
    [[1, -1, -1, -1, -1], [-1, 2, -1, 2, 3], [-1, -1, 4, -1, -1], [-1, -1, 4, -1, -1], [-1] * 5]
)
IDLE = [{0: "A", 1: "B"}, {1: "B"}, {1: "B"}, {0: "C", 1: "D"}]
FULL = [{0: "A", 1: "B"}, {0: "C", 1: "B"}, {0: "D", 1: "B"}]

SAID = ["Mia", "from", "Dublin", ".", "<eos>"]
KEPT = TimedReply(SAID, [6.0, 0.8, 0.8, 0.7, 0.7], [194, 195, 196, 197, 198])
AGAIN = TimedReply(SAID, [6.0, 6.1, 6.2, 6.3, 6.4], [0] * 5)
LONG = TimedReply(["w" * 12] * 8, [6.0] * 8, [*range(1000, 1008)])


def times(contexts: list[int], series: dict[str, list[float]], title: str) -> plots.Picture:
    return measured.curves(title, "ms", "tokens of context", contexts, series, log="x")


PARTS = [("system", 600), *((f"T{n}", 100) for n in (1, 2, 3)), ("Q1", 8), ("R1", 24)]
TURNS = (PARTS, [*PARTS[:1], *PARTS[:0:-1], ("Q2", 8), ("sum", 8)], 592)
PICTURES: dict[str, Callable[[], plots.Picture]] = {
    "moves": lambda: plots.who_moves(MOVES),
    "moves, 6": lambda: plots.who_moves({f"operation {n}": CAUSAL for n in range(6)}),
    "moves, 1 token": lambda: plots.who_moves({"norm": np.eye(1), "nothing": np.zeros((1, 1))}),
    "loss": lambda: plots.loss_curve(LOSSES, level=math.log(185)),
    "loss, rises": lambda: plots.loss_curve([0.0, 0.0, 3.0, 4.0, 5.0], level=1.0),
    "time": lambda: times(CONTEXTS, TIMES, "one more token"),
    "time, equal ends": lambda: times([1, 2], {name: [1.0, 1.0] for name in "abcd"}, "x"),
    "time, long": lambda: times([1, 2], {"a": [1.0, 2.0]}, "w" * 200),
    "pause": lambda: plots.pause_beside_step([8, 64, 1024], [1.0, 2.1, 61], [0.66, 0.67, 0.98]),
    "pause, six": lambda: plots.pause_beside_step([8] * 6, [1e-3] * 6, [1e3] * 6),
    "reply": lambda: plots.reply_by_the_clock(KEPT, AGAIN),
    "reply, eight": lambda: plots.reply_by_the_clock(LONG, LONG),
    "to scale": lambda: plots.reply_to_scale(55, 0.7, 100),
    "to scale, 2": lambda: plots.reply_to_scale(1e-3, 1e-3, 2),
    "hidden keys": lambda: plots.hidden_keys(["to", "the"], 7, 4, 8, [27, 100], [True, False]),
    "hidden keys, 11": lambda: plots.hidden_keys(["Toronto"] * 11, 6, 4, 8, [185] * 11, [True] * 11),
    "tie": lambda: plots.tie(["soup", "pie"], {"alone": [10.3125, 10.25], "beside": [10.25, 10.25]}),
    "in blocks": lambda: plots.in_blocks([6, 10, 21], 16, "key"),
    "card": lambda: plots.squares({"weights": 15, "users": 53, "kept back": 12}),
    "card, 1": lambda: plots.squares({"weights": 1}),
    "staircase": lambda: plots.staircase(SIZES, READ),
    "sweep": lambda: plots.time_by_users(TOKENS, SWEEP, memory=1.2, arithmetic=0.1),
    "sweep, 6": lambda: plots.time_by_users(TOKENS[:6], SWEEP[:6], memory=1.2, arithmetic=0.1),
    "waterfall": lambda: plots.waterfall(STEPS, "one decode step"),
    "waterfall, one": lambda: plots.waterfall({"w" * 90: ({}, 2.0)}, "w" * 200),
    "kept": lambda: plots.kept_rows(["Mia", "w" * 20, "by"], CACHES),
    "heads": lambda: plots.who_reads(HEADS, 4),
    "orders": lambda: plots.two_orders(1000, 32, 24),
    "orders, DeepSeek-V3": lambda: plots.two_orders(100_000, 128, 512),
    "parts": lambda: plots.two_parts(32, 24, 32),
    "turned rows": lambda: plots.turned_rows(1000, 32, 24),
    "variants": lambda: plots.variants(VARIANTS, 20, "yours"),
    "variants, one": lambda: plots.variants({"w" * 90: (1, 1, 1)}, 20, "yours"),
    "slots": lambda: plots.slots({"static": IDLE, "continuous": FULL}, 2),
    "slots, one step": lambda: plots.slots({"w" * 80: [{}]}, 1),
    "slots, twenty": lambda: plots.slots({"long": [{3: "A" * 30}] * 20}, 5),
    "stall": lambda: plots.stall([16, 64, 256], [900.0, 300, 120], [5.0, 12, 60]),
    "choices": lambda: plots.choices({(4, 64): (13e3, 9.0), (16, 64): (30.0, 9.0)}, (250, 25)),
    "bars": lambda: plots.bars(
        {"one": [1.0, 3.0], "none": [0.0, 0.0]}, ["run", "used again"], "tokens run again"
    ),
    "lanes": lambda: plots.lanes({"w" * 30: {"": (9.0, 4.0)}, "two": {"a": (1.0, 3.0), "b": (2.0, 0.0)}}),
    "to a first word": lambda: plots.to_first_word(
        [2, 3, 5], {"w" * 30: [900.0, 60, 50], "b": [9e4, 90, 51]}, 200
    ),
    "batches": lambda: plots.batches({"padded": ["  A", "BBB"], "end to end": ["ABBBCD"]}),
    "who looks": lambda: plots.who_looks(np.kron(np.eye(2), np.tri(2)), "AABB"),
    "judged": lambda: plots.judged(
        ["The", "sea"], ["is", "so", "cold", "."], ["is", "so", "calm", ".", "The"]
    ),
    "judged, all taken": lambda: plots.judged(["w" * 30], ["v" * 30], ["v" * 30, "u" * 30]),
    "rows of a round": lambda: plots.rows_of_a_round("sea", ["is", "so", "cold", "."], 2),
    "rounds": lambda: plots.rounds(
        {"look-up": ([0.0, 0.0, 1.25], 1.5, 1.1), "layers, k = 8": ([0.5] * 8 + [1.5], 2.75, 0.5)}
    ),
    "read once": lambda: plots.read_once({"1 word": (4.0, 0.01), "w" * 20: (4.0, 8.0)}),
    "chosen": lambda: plots.chosen(["The", "w" * 90, "is", "calm", "."], [1, 3]),
    "automaton": lambda: plots.automaton(FORKED, ["The", "w" * 90, "is", "calm", "slept"]),
    "ahead": lambda: plots.ahead(
        [8, 9, 10, 11, 12], ["snowy", "in", "w" * 90, "."], ["foggy"], {9: ["in", "w" * 90], 12: ["We"] * 30}
    ),
    "ahead, one taken": lambda: plots.ahead(
        [0, 1, 2, 3], ["so", "cold", "."], ["so", "calm"], {2: ["."], 3: ["The"]}
    ),
    "two ways": lambda: plots.two_ways({"nice": (0.7, 0.0), "w" * 90: (0.3, 1.0)}, ("masked", "again")),
    "laid over": lambda: plots.laid_over(["nice", "warm", "cold"], SIXTHS, SIXTHS[::-1]),
    "pages": lambda: plots.pages({"A": 17, "B": 32, "C": 5}, {"A": [0, 1], "B": [2, 3], "C": [4]}, 12, 16),
    "turns": lambda: plots.two_turns({"tools": TURNS, "w" * 20: TURNS}, 2, {"tools": "9 run", "w" * 20: ""}),
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


def test_who_moves_counts_and_colours_what_crosses() -> None:
    picture = picture_of("moves")
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
    assert picture.alt.endswith("norm 6.")


def test_loss_curve_says_where_it_starts_and_ends() -> None:
    picture, end = picture_of("loss"), float(np.median(LOSSES[-20:]))
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
    for figure in both("time"):
        assert {*TIMES, "40 ms", "4.0 ms", "2.0 ms", "1", "10", "100", "1,000"} <= set(words(figure))
        assert figure.axes[0].child_axes[0].get_xscale() == "log"
        assert [list(line.get_ydata()) for line in curves(figure)] == list(TIMES.values())
        assert [list(line.get_xdata()) for line in curves(figure)] == [CONTEXTS] * 3
    assert "with the growing one: 1.2 at 1, 1.3 at 8, 1.6 at 64, 2.2 at 256, 4.0 at 1,024" in picture.alt


def test_a_card_takes_the_longer_of_its_two_lanes() -> None:
    assert picture_of("lanes").alt.endswith(
        "two, 5.00 ms: a reads 1.00 and computes 3.00, then b reads 2.00 and computes 0."
    )
    for figure in both("lanes"):
        reads, computes = (
            [box.get_width() for box in boxes(figure, name)][1:] for name in ("query", "value")
        )
        assert [*reads, *computes] == pytest.approx([reads[0] * n / 9 for n in (9, 1, 2, 4, 3, 0)])


def test_the_waits_for_a_first_word_are_named_in_their_order() -> None:
    for figure in both("to a first word"):
        assert [list(line.get_ydata()) for line in curves(figure)] == [[900, 60, 50], [9e4, 90, 51]]
        assert {"2", "3", "5", "promised 200", "b 51"} <= set(words(figure))
    assert "b: 90,000 with 2, 90 with 3, 51 with 5. Promised: 200." in picture_of("to a first word").alt


def test_a_pause_and_a_step_are_bars_on_one_scale() -> None:
    for figure in both("pause"):
        pauses, steps = (
            [box.get_width() for box in boxes(figure, name)][1:] for name in ("query", "generated")
        )
        assert pauses[2] / pauses[1] == pytest.approx(61 / 2.1, rel=0.01)
        assert steps[2] <= max(2, 0.98 / 61 * pauses[2] * 1.01)
        assert {"61 ms", "0.98 ms", "0.66 ms"} <= set(words(figure))


def test_a_reply_lies_on_one_axis_of_time() -> None:
    for figure in both("reply"):
        passes = [box.get_width() + 1.6 for box in boxes(figure, "query fill")]
        assert len(passes) == 10
        assert [width / passes[0] for width in passes] == pytest.approx(
            [ms / 6 for ms in KEPT.ms + AGAIN.ms], rel=0.01
        )
        assert words(figure).count("pause") == 6
        assert {"9.0 ms", "31 ms", "194 rows", "198 rows in each layer", *SAID} <= set(words(figure))
    with pytest.raises(ValueError, match="the same words"):
        plots.reply_by_the_clock(KEPT, LONG)


def test_a_long_reply_is_to_scale() -> None:
    for figure in both("to scale"):
        pause, *again = [box.get_width() for box in boxes(figure, "query")]
        [drip] = [box.get_width() for box in boxes(figure, "generated")]
        assert len(again) == 100
        assert drip / pause == pytest.approx(99 * 0.7 / 55)
        assert {"0.12 s", "5.5 s", "100 pauses"} <= set(words(figure))


def test_a_card_has_a_square_for_each_gib() -> None:
    for figure in both("card"):
        counts = [len(boxes(figure, colour)) for colour in ("query", "key", "value")]
        assert counts == [15 + 1, 53 + 1, 12 + 1]  # one each beside its name
    assert "80 squares of 1 GiB: 15 of them weights, 53 of them users and" in picture_of("card").alt


@pytest.mark.parametrize("places", [[10.0] * 3, [300.0, 299.0, 298.0], [50.0, 250.0], [90.0, 100.0, 95.0]])
def test_names_at_the_ends_of_lines_keep_their_order_and_their_room(places: list[float]) -> None:
    moved = canvas.apart(places, 40, 30, 300)
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    assert all(moved[b] - moved[a] >= 40 for a, b in pairwise(order))
    assert all(30 <= y <= 300 for y in moved)


def test_a_staircase_is_in_gb_and_mib() -> None:
    for figure in both("staircase"):
        assert curves(figure)[0].get_xydata()[[0, -1]].tolist() == [[1 / 32, 173], [512, 14]]
        assert {"14 GB/s", "20 GB/s", *READ} <= set(words(figure))


def test_a_sweep_lies_over_its_two_lines() -> None:
    for figure in both("sweep"):
        memory, arithmetic, *dots = (line.get_xydata().tolist() for line in curves(figure))
        assert memory == [[1, 1.2], [512, 1.2]]
        assert arithmetic == [[1, 0.1], [512, pytest.approx(51.2)]]
        assert dots == [[list(dot)] for dot in zip(TOKENS, SWEEP, strict=True)]
        assert {"read the weights", "do the arithmetic", "4.8", "54"} <= set(words(figure))


def test_a_waterfall_makes_a_bar_of_its_parts() -> None:
    picture = picture_of("waterfall")
    assert "as it stands: measured 7.20; all cores share each matrix: starts 0 to 0.100, " in picture.alt
    for figure in both("waterfall"):
        (whole,) = boxes(figure, "query")
        scale = whole.get_width() / 7.2
        (_, rest), (_, *reading) = (
            boxes(figure, "soft"),
            boxes(figure, "key"),
        )  # the first explains the colour
        assert rest.get_width() == pytest.approx(scale * 0.6)
        assert rest.get_height() == whole.get_height()
        assert [box.get_width() for box in reading] == pytest.approx([scale * 2, scale * 0.5])
        _, *arithmetic = boxes(figure, "value")  # beside the reading, in a lane of its own
        for one, other in zip(reading, arithmetic, strict=True):
            assert one.get_height() == other.get_height() == whole.get_height() / 2
            assert abs(one.get_y() - other.get_y()) == one.get_height()
            assert other.get_x() == pytest.approx(one.get_x() + 0.1 * scale)
        assert {"7.20 ms", "2.50 ms", "2.00 ms", "rest", *STEPS} <= set(words(figure))


def test_each_variant_is_a_named_dot() -> None:
    picture = picture_of("variants")
    assert "16, 4 sinks: 41 bytes a token, loss 0.90, 16 signed;" in picture.alt
    for figure in both("variants"):
        assert {*VARIANTS, "bytes a token", "loss; a filled dot signs all 20"} <= set(words(figure))
        hollow = sum(disc.get_facecolor() == disc.get_edgecolor() for disc in figure.findobj(Circle))
        assert hollow == sum(signed == 20 for *_, signed in VARIANTS.values())


def test_a_row_that_is_gone_has_no_fill_and_no_weight() -> None:
    assert (
        "all: nothing is gone, by looks at Mia 1.00; the model says Mia from Oslo." in picture_of("kept").alt
    )
    assert f"{'w' * 39}…: Mia is gone, by looks at {'w' * 20} 0.92; the model says" in picture_of("kept").alt
    for figure in both("kept"):
        filled = [box.get_facecolor()[3] > 0 for box in figure.findobj(FancyBboxPatch)]
        assert filled == [True, True, True, False, True, True]
        assert [word for word in words(figure) if word[:1] in "01"] == ["1.00", "0.92"]


def test_a_row_is_as_wide_as_its_numbers_and_each_head_reads_one() -> None:
    assert (
        "GQA: KV head 1 serves 1 and 2; KV head 2 serves 3 and 4; a row has 128 numbers"
        in picture_of("heads").alt
    )
    for figure in both("heads"):
        boxes = [box.get_width() for box in figure.findobj(FancyBboxPatch) if box.get_height() == 26]
        rows = [width for width in boxes if width != 24]  # the others are the query heads
        assert rows == [16] * (8 + 4 + 2) + [28]
        assert sum(line.get_color() == "query" for line in figure.findobj(Line2D)) == 16
        assert {"256 numbers", "128 numbers", "64 numbers", "56 numbers"} <= set(words(figure))


def test_both_orders_are_counted() -> None:
    for figure in both("orders"):
        assert {"800,000 multiplications", "24,768 multiplications"} <= set(words(figure))
    for (T, S, D, rank), name in {
        (1, 1000, 32, 24): "orders",
        (1, 100_000, 128, 512): "orders, DeepSeek-V3",
    }.items():
        for count in multiplications(T, S, D, rank):
            assert f" {count:,} multiplications" in picture_of(name).alt


def test_with_a_turn_for_each_row_the_query_takes_in_m_for_each() -> None:
    _, once = multiplications(1, 1000, 32, 24)
    _, each = multiplications(1, 1, 32, 24)
    for figure in both("turned rows"):
        told = [word for word in words(figure) if word.endswith("multiplications")]
        assert told == [f"{once:,} multiplications", f"{1000 * each:,} multiplications"]
        assert [word for word in words(figure) if word[0] in "Rc"] == [
            "c₁",
            "c₂",
            "c₃",
            *"c₁ R₁ c₂ R₂ c₃ R₃".split(),
        ]


def test_no_pole_crosses_a_name() -> None:
    """A name begins at its pole, so only the poles of dots right of it could cross it: they end below."""
    dots = {str(n): (100.0 + 12 * n, 300.0 - 40 * (n % 3)) for n in range(12)}
    found = flags(dots, right=600)
    for one, (start, y) in found.items():
        for other, (x, foot) in dots.items():
            if start < x < start + 20:
                assert not found[other][1] - 6 <= y <= foot, (one, other)


def test_a_block_for_each_request_and_each_idle_stretch() -> None:
    assert stretches(IDLE, 0) == [("A", 0, 1), ("", 1, 3), ("C", 3, 4)]
    picture = picture_of("slots")
    assert "static: 4 steps, 2 of 8 places idle, slot 1 A 1 idle 2 C 1, slot 2 B 3 D 1" in picture.alt
    assert "continuous: 3 steps, 0 of 6 places idle" in picture.alt
    for figure in both("slots"):
        assert [sum(word == who for word in words(figure)) for who in "ABCD"] == [2, 2, 2, 2]


def test_of_two_lines_that_end_on_one_spot_the_first_is_named_above() -> None:
    for gap in ([5.0, 12, 64.01], [5.0, 12, 63.99]):
        figure = plots.stall([16, 64, 256], [900.0, 300, 64], gap).figure
        heights = {text.get_text(): text.get_window_extent().y0 for text in texts(figure)}
        assert heights["TTFT of the long prompt"] > heights["longest wait of others"]


def test_rows_of_pages_are_drawn_one_by_one() -> None:
    assert picture_of("pages").alt.endswith("5 are taken, 26 of their rows are blank.")
    for figure in both("pages"):
        filled = [len(boxes(figure, name)) - 1 for name in ("query", "key", "value")]  # 1 explains
        assert filled == [17, 32, 5]


def test_a_draft_that_is_refused_is_struck_out() -> None:
    alt = picture_of("judged").alt
    assert alt.endswith("2 taken; cold is struck out and calm put in. 1 pass, 3 new words.")
    assert "1 taken; all taken. 1 pass, 2 new words." in picture_of("judged, all taken").alt
    for figure in both("judged"):
        assert len(boxes(figure, "key fill")) == 4  # two words, drafted and said
        assert len(boxes(figure, "generated fill")) == 1


def test_rows_of_refused_drafts_go_and_the_last_draft_has_none() -> None:
    assert picture_of("rows of a round").alt.endswith("go. 2 rows to drop, 1 row to drop.")
    for figure in both("rows of a round"):
        assert len(boxes(figure, "key fill")) == 6  # the newest word and two drafts, in both


def test_a_round_is_to_scale_with_its_words() -> None:
    assert "takes 1.25, gives 1.50 words: 1.20 times as fast, measured 1.10;" in picture_of("rounds").alt
    for figure in both("rounds"):
        kinds = [boxes(figure, f"{name} fill")[1:] for name in ("key", "query", "generated")]  # 1 explains
        drafts, checks, words = ([box.get_width() for box in kind] for kind in kinds)
        one = words[0]
        assert drafts == pytest.approx([one / 2] * 8)  # look-ups cost nothing
        assert checks == pytest.approx([1.25 * one, 1.5 * one])
        assert words == pytest.approx([one, one / 2, one, one, 0.75 * one])


def test_the_longer_of_reading_and_computing_counts() -> None:
    assert "1 word: reads for 4.0 ms, computes for 0.01, takes 4.0 ms; " in picture_of("read once").alt
    assert picture_of("read once").alt.endswith("computes for 8.00, takes 8.0 ms.")
    for figure in both("read once"):
        reads, computes = (
            [box.get_width() for box in boxes(figure, f"{name} fill")[1:]] for name in ("key", "query")
        )
        assert computes == pytest.approx([1, 2 * reads[0]])
        assert reads[0] == reads[1]


def test_two_distributions_share_what_both_give() -> None:
    assert picture_of("laid over").alt.endswith("refused 1/3. Both together give 2/3.")
    for figure in both("laid over"):
        wide = [box.get_width() for box in boxes(figure, "key fill")[1:]]  # 1 explains
        (left_over,) = boxes(figure, "generated fill")[1:]
        assert wide == pytest.approx([wide[0], 2 * wide[0], wide[0]])
        assert left_over.get_width() == pytest.approx(2 * wide[0])


def test_padding_is_counted_and_blocks_see_themselves_alone() -> None:
    assert "padded:   A, BBB; 6 squares, 2 of them padding. end to end" in picture_of("batches").alt
    assert picture_of("who looks").alt.startswith("6 of 16 squares are filled. A looks at A; A looks at AA;")


def test_what_is_short_enough_is_filled() -> None:
    assert picture_of("choices").alt.endswith("Short enough: 16 slots with 64.")
    for figure in both("choices"):
        assert len(boxes(figure, "generated fill")) == 1


def test_a_run_too_long_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="21 steps in the longest run; expected at most 20"):
        plots.slots({"a": [{}] * 21}, 2)
