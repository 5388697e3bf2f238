"""The figures of notebooks 06 to 19 show the numbers they are given, legible, and say the same in words."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text

from helpers import plots
from helpers.chapters import a1, a2, n06, n07, n08, n09, n10, n11, n12, n14, n15, n16, n17, n18, n19, n20, n21
from helpers.model import shipped
from helpers.model.cache import GrowingCache
from helpers.museum import exhibit
from helpers.museum.engine import Probe
from helpers.museum.exhibits import CARLA
from helpers.plots import measured
from helpers.serve.taught import Request, Scheduler, seconds, serve
from helpers.trace import WordComparison
from tests.pictures import boxes, check_form

OWN, CAUSAL = np.eye(5, dtype=bool), np.tri(5, dtype=bool)
MOVES = {"norm": OWN, "projection": OWN, "rotation": OWN, "attention": CAUSAL, "MLP": OWN}
LOSSES = [0.9 + 4.3 * math.exp(-n / 60) + 0.1 * math.sin(n * n) for n in range(1500)]
CONTEXTS = [1, 8, 64, 256, 1024]
TIMES = {
    "without the cache": [1.3, 2.1, 6.5, 14.2, 39.8],
    "with the growing one": [1.2, 1.3, 1.6, 2.2, 4.0],
    "with the preallocated one": [1.1, 1.2, 1.3, 1.5, 2.0],
}
SHARED = {"launches": (0, 0.1), "reading": (0.1, 2.1), "arithmetic": (0.2, 1.2)}
BITS = {"launches": (0, 0.1), "reading": (0.1, 0.6), "arithmetic": (0.2, 1.4), "rest": (1.4 - 1e-12, 2.0)}
STEPS: dict[str, Any] = {"as it stands": ({}, 7.2), "cores share": (SHARED, 2.5), "w" * 90: (BITS, 2.0)}
VARIANTS: dict[str, tuple[float, int, float]] = {
    "all rows": (205.3, 20, 0.71),
    "8 bits": (77.7, 20, 0.71),
    "2 bits": (42.9, 20, 0.71),
    "window of 64": (128, 0, 0.82),
    "window of 16": (32, 0, 1.49),
    "window of 16, 4 sinks": (40, 16, 0.9),
    "window of 16 in layers 2 to 4": (75.3, 20, 1.26),
    "yours": (81.3, 19, 0.83),
}
NAMED = "Mia writes from Oslo . Today weather is so nice . Signed by"
KEYS = torch.linspace(-2, 3, 96).reshape(3, 32)
DROPPED = n14.KeptEntries({1: 0.92, 2: 0.08}, "Ines" * 30)
PRINTS = {
    f"room {n}": exhibit.Fingerprint(np.eye(3, 4) / 10**n, exhibit.Location(2, 1, 5, 9) if n else None)
    for n in range(5)
}
HEADS: dict[str, Any] = {name: shipped.VARIANTS[name.lower()] for name in ("MHA", "GQA", "MQA", "MLA")}
SIXTHS = [Fraction(n, 6) for n in (3, 2, 1)]
FORKED = np.array(
    [[1, -1, -1, -1, -1], [-1, 2, -1, 2, 3], [-1, -1, 4, -1, -1], [-1, -1, 4, -1, -1], [-1] * 5]
)
IDLE = ["AB", "B", "B", "CD"]
FULL = ["AB", "BC", "BD"]

SAID = ["Mia", "from", "Dublin", ".", "<eos>"]
KEPT, AGAIN = [6.0, 0.8, 0.8, 0.7, 0.7], [6.0, 6.1, 6.2, 6.3, 6.4]
ADDS = {"embedding": 0.0, "attention 1": 0.66, "MLP 1": 10.5, "MLP 2": -2.3}
PLACES = [WordComparison(0, ("a", "a"), 2.0, 1e-5), WordComparison(1, ("a", "w" * 30), 0.0, 0.5)]
WAITS = {
    budget: [(600 + 5e5 / budget + 90 * seed, budget / 30 + seed) for seed in range(5)]
    for budget in (256, 512, 1024)
}
TRIED = {"256 tokens": [(410.0, 9.8), (430.0, 11.0), (380.0, 9.5)], "whole prompts": [(284.0, 279.0)] * 3}


def served(n: int) -> list[Request]:
    """Return n requests that wait for each other."""
    requests = [Request(name, name / 9, 3000, 40) for name in range(n)]
    for _ in serve(Scheduler(n, 512, 10**6), requests, seconds):
        pass
    return requests


PICTURES: dict[str, Callable[[], plots.Picture]] = {
    **{
        "shared heads": n06.grouped_query_attention,
        "clock hands": lambda: n06.rope_clock_hands((1.0, 0.1, 0.01)),
    },
    **{
        "one stream": n07.residual_stream,
        "one layer": n12.layer_timeline,
        "bars": lambda: n12.step_bars("w" * 90, {"w": (None, 1e3), "16 bits": (6.51, 9.53)}),
        "two terms": lambda: n12.two_terms(
            [1, 64],
            {f"{n} tokens": [(4.48, 0.02, 0.02), (4.48, 22.3, 1.3)] for n in (500, 8900)},
            {"8900 tokens": 49},
        ),
    },
    "handed over": lambda: n19.prefill_handover(["Mia", "from", "Oslo", "."], 17),
    **{
        "two ranks, rows": lambda: n19.entries_on_two_ranks(17),
        "mask pair": a1.top_left_and_bottom_right_masks,
    },
    "head map": lambda: n10.head_map({(80, 64): 25, (1, 1): 15}, [(79, 63), (0, 0)]),
    "head map, 4": lambda: n10.head_map({(2, 1): 40}, [(0, 0), (3, 3)]),
    "contributions": lambda: plots.logit_contributions("Mia", {"as trained": ("Mia (1.00)", ADDS)}),
    "contributions, 3": lambda: plots.logit_contributions(
        "Mia", {f"MLP {n} off": ("Alexander (0.05)", ADDS) for n in range(3)}
    ),
    "contributions, 4": lambda: plots.logit_contributions(
        "Sebastian", {f"{n} batches": ("w" * 90, dict.fromkeys(ADDS, -9.0 * n)) for n in range(4)}
    ),
    "moves": lambda: n07.token_dependencies(MOVES),
    "looks, says": lambda: n08.watched_run(n08.load_training_records()),
    "loss": lambda: n08.loss_curve(LOSSES, untrained_loss=math.log(185)),
    "time": lambda: measured.line_chart("one more token", "ms", "tokens of context", CONTEXTS, TIMES, "x"),
    "time, equal ends": lambda: measured.line_chart(
        "w" * 200, "", "w", [1, 2], dict.fromkeys("abcd", (1, 1))
    ),
    "pause": lambda: n09.prefill_and_step_times([8, 64, 1024], [1e-3, 2.1, 1e3], [0.66, 0.67, 1e3]),
    "reply": lambda: n09.reply_timeline(SAID, KEPT, AGAIN, 194),
    "to scale": lambda: n09.reply_times_to_scale(55, 0.7, 100),
    "tie": lambda: n21.logits_on_bfloat16_axis(
        ["soup", "pie"], {"alone": [10.3125, 10.25], "beside": [10.25, 10.25]}
    ),
    "suspects": lambda: plots.word_differences_of_pairs(
        {"A": (PLACES, 1e-3), "w" * 30: (PLACES[:1], 1e-4), "C": (PLACES * 13, 2.0)}
    ),
    "suspect": lambda: plots.word_differences_of_pairs({"": (PLACES, 1e-4)}),
    "card": lambda: n11.memory_chart({"weights": 15, "users": 53, "kept back": 12}),
    "fingerprints": lambda: plots.fingerprint_grids(PRINTS),
    "fingerprint": lambda: plots.fingerprint_grid(np.eye(4, 10), 3),
    "probe": lambda: a2.timeline(Probe("Mia writes from Oslo .")),
    "probe, many passes": lambda: a2.timeline(
        Probe(
            CARLA,
            chunk=4,
            earlier_request="This is the diary of Carla from Seoul . Carla",
            concurrent_request=CARLA,
        )
    ),
    "waterfall": lambda: plots.waterfall(STEPS, "one decode step"),
    "kept": lambda: n14.kept_and_dropped_words(
        NAMED.split(),
        {
            "all": n14.run_and_list_kept_entries(*shipped.load_shipped(), NAMED, GrowingCache),
            "w" * 90: DROPPED,
        },
    ),
    "heads": lambda: n15.kv_entries_and_query_heads(HEADS),
    "selections": lambda: n15.losses_and_signatures(
        [4, 32], {"w" * 40: [(0, 4.5), (7, 1.4)], "trained indexer": [(20, 0.8), (20, 0.7)]}, 20, 0.7
    ),
    "orders": lambda: n15.expanded_and_absorbed_products(1000, 32, 24),
    "two parts": lambda: n15.two_part_score(32, 24, 32),
    "orders, DeepSeek-V3": lambda: n15.expanded_and_absorbed_products(100_000, 128, 512),
    "ranges": lambda: n14.channel_ranges(KEYS, torch.stack([KEYS.amin(0), KEYS.amax(0)]), (-1.5, 2.0)),
    "variants": lambda: n14.loss_by_cache_size(VARIANTS, 20, "yours"),
    "slots": lambda: n16.slot_timeline({"static": IDLE, "continuous": FULL}, 2),
    "slots, twenty": lambda: n16.slot_timeline({"w" * 80: [["A" * 30]] * 20}, 5),
    "CPU and card": lambda: n16.cpu_and_card({"w" * 20: [((0, 2), (2, 10)), ((2, 4), (10, 18))]}),
    "step": lambda: n16.step_and_mask([("B", 7, 1), ("C", 3, 1), ("A", 6, 6)]),
    "step, prompts": lambda: n16.step_and_mask([("A", 0, 8), ("B", 0, 2)]),
    "lanes": lambda: n16.request_lanes(served(6), served(6)[-2]),
    "waits by setting": lambda: n16.waits_by_setting({"budget": WAITS, "slots": {8: WAITS[256]}}),
    "both waits": lambda: n16.both_waits({"2 a second": WAITS, "1 a second": {512: WAITS[1024]}}),
    "bars": lambda: plots.stacked_bars(
        {"one": [1.0, 3.0], "none": [0.0, 0.0]}, ["run", "used again"], "tokens processed again"
    ),
    "waits": lambda: n20.ttft_and_itl({"a": TRIED, "b": {"8 + 3": [(534.0, 30.7)] * 3}}, 500, 25),
    "waits, SLOs far off": lambda: n20.ttft_and_itl({"a": TRIED, "b": {}}, 900, 400),
    "cards": lambda: n20.fleets(
        {"nothing": 8775, "chat": 3}, {"nothing": 9, "chat": 1}, {"nothing": (5, 4), "chat": (1, 1)}
    ),
    "batches": lambda: plots.input_batches({"padded": ["  A", "BBB"], "end to end": ["ABBBCD"]}),
    "verified": lambda: n18.draft_verification(
        ["The", "sea"], ["is", "so", "cold", "."], ["is", "so", "calm", ".", "The"]
    ),
    "verified, all accepted": lambda: n18.draft_verification(["w" * 30], ["v" * 30], ["v" * 30, "u" * 30]),
    "rounds": lambda: n18.round_times(
        {
            "prompt lookup": (2, 0.0, 1.25, 1.5),
            "layers, k = 8": (8, 4.0, 1.5, 2.75),
        }
    ),
    "break-even": lambda: n18.break_even(
        [1, 16, 256], {"experts": [2.3, 1.9, 1.01], "w" * 90: [1, 1, 1.8], "c": [1, 1, 1.1]}, 1.55
    ),
    "chosen": lambda: plots.chosen_words(["The", "w" * 90, "is", "calm", "."], [1, 3]),
    "automaton": lambda: plots.automaton(FORKED, ["The", "w" * 90, "is", "calm", "slept"]),
    "two ways": lambda: plots.compare_probabilities(
        {"nice": (0.7, 0.0), "w" * 90: (0.3, 1.0)}, ("masked", "again")
    ),
    "cut layer": lambda: n19.column_and_row_split(
        4096, {("q_proj", "o_proj"): 4096, ("gate_proj", "down_proj"): 28_672}
    ),
    "laid over": lambda: n18.probability_overlap(["nice", "warm", "cold"], SIXTHS, SIXTHS[::-1]),
    "pages": lambda: plots.page_pool(
        {"A": 17, "B": 32, "C": 5}, {"A": [0, 1], "B": [2, 3], "C": [4]}, 12, 16
    ),
    "stairs": lambda: n17.stairs(
        {"w" * 12: [[("tools", 4000), n17.MARK, (f"time {n}", 8), ("question 0", 300)] for n in range(3)]},
        {"w" * 12: [{"read": 4000, "written": 0, "input": 308}] * 3},
    ),
    "shared pages": lambda: n17.shared_pages_picture(
        {"A": "abcdefg", "B": "abcdxy"}, {"w" * 12: {"A": [0, 1], "B": [0, 2]}, "gone": {}}, 4, 4
    ),
}
# Notebooks show these with times of their own machine, or a model that others lack, so that nbval compares
# none of them: what each says in words, and a checksum of its SVG.
UNCOMPARED = {
    "loss": (
        "The loss of 1,500 steps falls from 5.2 to 0.92. A dashed line at ln V = 5.2: a model that "
        "has learned nothing.",
        "3b2bc841",
    ),
    "pause": (
        "Milliseconds of prefill, the pause, and of a decode step, by prompt. 8 tokens: 0.00100 and "
        "0.660; 64 tokens: 2.10 and 0.670; 1,024 tokens: 1,000 and 1,000.",
        "3bdfd1ff",
    ),
    "reply": (
        "One reply on one axis of milliseconds: Mia, from, Dublin, ., <eos>. With its entries kept: a "
        "pause of 6.00, then 4 tokens that drip, the last at 9.00; 194 entries in each layer after the "
        "pause and 198 at the end. With nothing kept: 5 pauses, the last token at 31.0.",
        "d06f9dbc",
    ),
    "to scale": (
        "100 tokens to scale. Entries kept: a pause and the drip, 124 ms. Nothing kept: 100 pauses, 5.50 s.",
        "03f6a67e",
    ),
    "head map": (
        "80 layers of 64 heads. layer 80, head 64: in 25 of 40; layer 1, head 1: in 15 of 40.",
        "e6ee1bb3",
    ),
    "rounds": (
        "Rounds to scale, 1 is the time of a decode step. prompt lookup: takes 1.25, gives 1.50 "
        "tokens: 1.20 times as fast; layers, k = 8: takes 5.50, gives 2.75 tokens: 0.50 times as fast.",
        "f9c1b353",
    ),
}


@cache
def picture_of(name: str) -> plots.Picture:
    return PICTURES[name]()


@pytest.mark.parametrize("name", UNCOMPARED)
def test_text_of_uncompared_figures(name: str) -> None:
    picture = picture_of(name)
    svg = picture.html().partition("<svg")[2].partition("<details")[0]
    assert (picture.alt, f"{zlib.crc32(svg.encode()):08x}") == UNCOMPARED[name]


@pytest.mark.parametrize("name", PICTURES)
def test_model_figures_are_legible_themed_and_small(name: str) -> None:
    check_form(picture_of(name))


def test_colours_of_reading_and_of_steps_without_parts() -> None:
    figure = picture_of("waterfall").figure
    names = {name: len(boxes(figure, name)) for name in ("query", "soft", "generated", "value")}
    assert names == {
        "query": 5,
        "soft": 5,
        "generated": 5,
        "value": 5,
    }  # a key, and two bars with a number below each; soft: two keys, and a whole bar


def test_bars_of_several_pictures_have_one_scale() -> None:
    def width(up_to: float) -> float:
        picture = plots.waterfall({"a step": ({}, 2.0)}, "one decode step", up_to=up_to)
        return max(box.get_width() for box in boxes(picture.figure, "soft"))

    assert width(8) == pytest.approx(width(0) / 4)
    assert width(1) == width(0), "a step that takes longer is drawn in full"


def test_a_bar_carries_the_milliseconds_of_its_parts() -> None:
    drawn = [text.get_text() for text in picture_of("waterfall").figure.findobj(Text)]
    for parts in (SHARED, BITS):
        assert {f"{end - start:.2f}" for start, end in parts.values()} <= {*drawn}


def test_moving_median_does_not_lag() -> None:
    falling = [float(n) for n in range(50, 0, -1)]
    assert n08.moving_median(falling, 5) == falling
    assert n08.moving_median([1.0, 9.0, 1.0, 1.0], 1) == [1, 1, 1, 1]
