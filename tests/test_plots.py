"""The figures of Part I show the trace's numbers, whole and legible, and say the same in words.

What holds for all figures is tested here for those of Part I and in `test_plots_model.py` for the others.
That a notebook's stored figure is the one that the code draws, nbval tests: it compares the words and marks
of its SVG.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from functools import cache
from typing import Any

import IPython.display
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

from helpers import plots, toy
from helpers.chapters import n00, n01, n02, n03, n05
from helpers.drawing import svg
from helpers.drawing.canvas import SHARPNESS
from helpers.plots.attention import attention_in_texts
from helpers.plots.measured import line_chart
from helpers.plots.passes import _shade, score_counts
from helpers.recording.diary import load_diary, load_name_head
from helpers.recording.toy import record_toy
from helpers.trace import Trace
from tests.pictures import check_form
from tests.pictures import words as words_of

NORMAL, LONG = record_toy(), record_toy(ban_eos=True)
ODD = ["<img src=x onerror=alert(1)>", "$x_1^2$", "שלום", "a\u200bb\nc", "\U0001f600"]
ODD += ["w" * 200, "'\"&", "\\frac"]
ODD_TRACE = record_toy(
    ODD, [1e9, -1e9, 0.123456, 1e-9, 7, 99999.5, 3, 123456], max_new_tokens=2, ban_eos=True
)
DIARY = "Today weather is so nice . We ate warm bread by the river . Signed Grandmother . Found by".split()

PICTURES: dict[str, Callable[[], plots.Picture]] = {
    "one match": lambda: n01.query_key_comparison(
        "by", [2, -1], ["Ben", "from"], np.array([[3, 0], [0, 1]]), np.eye(2)
    ),
    "strips": lambda: n01.attention_weights_at(3),
    "triangle": lambda: plots.score_triangle(LONG),
    "triangle, 1 token": lambda: plots.score_triangle(record_toy(["so"], max_new_tokens=1)),
    "chunk": lambda: n05.chunk_mask(toy.PROMPT, ["nice", "warm"]),
    "by step": lambda: n05.differences_by_step({ODD[0]: [0, 1e-6, 9e-6] * 4, "wrong": [0, 0.2, 60] * 4}),
    "curves": lambda: line_chart(
        "a pass", "ms", "tokens", [1, 8, 32], {"a": [4, 60, 624], "b": [4, 11, 35]}, "y"
    ),
    "probabilities": lambda: n02.word_probabilities(
        ["so", *ODD], [0.0, 1.0, 0.004, 0.5, 0.996, 0.1, 0.9, 0.3]
    ),
    "not said": lambda: plots.top_candidates(load_diary()),
    "one number": lambda: n03.words_at_random_number(
        {"one": np.array([0.5, 0.3, 0.195, 0.005]), "two": np.array([0.6, 0.4, 0, 0])},
        ["so", *ODD[:2], ODD[5]],
        0.9,
    ),
    "names": lambda: plots.attention_in_text(DIARY, [0.0] * 15 + [0.9] + [0.05] * 2 + [0.0], "Mia"),
    "looks": lambda: attention_in_texts(
        [(text.split(), row) for text, row in load_name_head().weights.items()]
    ),
    "two layers": lambda: n02.two_layer_dependencies("is"),
    "looked at": lambda: n00.attention_of_word(load_diary(), "by", layer=0, head=2),
}


def odd_names(trace: Trace) -> plots.Picture:
    """Words of any form over their weights, as looked at from the last."""
    words = [token.text for token in trace.sequences[0].tokens]
    return plots.attention_in_text(words[:-1], np.full(len(words) - 1, 1 / (len(words) - 1)), words[-1])


@cache
def picture_of(name: str) -> plots.Picture:
    return PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_legible_themed_and_small(name: str) -> None:
    check_form(picture_of(name))


@pytest.mark.parametrize("draw", [plots.score_triangle, odd_names])
def test_special_characters_are_drawn_as_text(draw: Callable[[Trace], plots.Picture]) -> None:
    page = draw(ODD_TRACE).html()
    assert "<img" not in page
    assert "&lt;img" in page


def luminance(rgb: np.ndarray) -> float:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(ink: str, fill: str, theme: int, share: float = 1.0) -> float:
    """Contrast (WCAG 2) of two colours of the palette, `share` of the second over paper."""
    on, over, paper = (np.array(to_rgb(svg.PALETTE[name][theme])) for name in (ink, fill, "paper"))
    dark, light = sorted([luminance(on), luminance(share * over + (1 - share) * paper)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_text_has_contrast_in_both_themes(theme: int) -> None:
    pairs = [("ink", f) for f in ("paper", "panel", "query fill", "value fill", "generated fill")]
    pairs += [(ink, "paper") for ink in ("soft", "query", "key", "value")] + [("paper", "query")]
    assert all(contrast(*pair, theme) >= 4.5 for pair in pairs)
    for count in range(1, 9):
        share, ink = _shade(count, 8)
        assert contrast(ink, "query", theme, share) >= 4.5, count


def test_matplotlib_settings_are_ignored_and_kept() -> None:
    figure = picture_of("curves")
    plain = figure.html(), figure.png()
    assert len(Image.open(io.BytesIO(plain[1])).getcolors() or []) > 64, "smooth edges"
    mine: dict[Any, Any] = {"text.color": "red", "font.size": 30, "axes.facecolor": "black"}
    with mpl.rc_context(mine | {"savefig.dpi": 30, "font.family": "serif", "grid.color": "red"}):
        before = dict(mpl.rcParams)
        again = PICTURES["curves"]()
        assert (figure.html(), figure.png()) == (again.html(), again.png()) == plain
        assert dict(mpl.rcParams) == before


def test_a_cell_has_png_then_svg_with_text(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda bundle, **kind: shown.append((bundle, kind)))
    picture = odd_names(ODD_TRACE)
    picture._ipython_display_()
    image, text = {"image/png": picture.png(), "text/plain": picture.alt}, picture.html()
    assert Image.open(io.BytesIO(picture.png())).width == 480 * SHARPNESS
    assert shown[0] == (image, {"metadata": {"image/png": {"width": 480}}, "raw": True})
    assert shown[1] == ({"text/html": text, "text/plain": " "}, {"raw": True})


def test_a_match_computes_what_it_writes() -> None:
    two = (["a", "b"], np.array([[3, -1], [0, 4]]), np.array([[7, 1], [2, 9]]))
    page = n01.query_key_comparison("in", [-2, 0.5], *two)
    assert {"−2·3 + 0.5·(−1) = ", "−6.5", "7.39", "(3, −1)", "1.000", "(2, 9)"} <= {*words_of(page.figure)}
    assert "a, key (3, −1): −2·3 + 0.5·(−1) = −6.5, e^score 0, weight 0.000, value (7, 1)" in page.alt
    for query, average in (([0, 0], "(4.5, 5)"), ([1e4, 0], "(7, 1)")):
        assert n01.query_key_comparison("in", query, *two).alt.endswith(
            f"the average of the values {average}."
        )


def test_strips_show_the_weights_of_the_four_rules() -> None:
    """At a position without a square matrix of weights, so that no axis can be mistaken for another."""
    assert (
        "even: 1 on weather, context 20; newest: 1 on is, context 1; first:"
        in n01.attention_weights_at(3).alt
    )


def test_triangle_counts_recorded_pairs() -> None:
    trace = copy.deepcopy(LONG)
    decode = trace.run("uncached").steps[1].parts[0]
    decode.visible[-1] = [(1, 5)]  # as if the first token had been dropped from one query's sight
    assert score_counts(trace.run("uncached"), 11)[4] == [6, 7, 7, 7, 7]
    assert "Total 275 pairs over 66 cells, 209 of them again." in plots.score_triangle(trace).alt


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: n01.query_key_comparison("by", [1], [], np.eye(2), np.eye(2)), r"query is \[1\]; expected"),
        (lambda: n02.two_layer_dependencies("nice"), "'nice'; expected one of Today, weather, is and so"),
        (lambda: plots.score_triangle(record_toy(max_new_tokens=10, ban_eos=True)), "13 tokens ran"),
    ],
)  # fmt: skip
def test_invalid_data_is_rejected(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
