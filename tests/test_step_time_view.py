"""StepTime, the Python face: picture, numbers and errors; tests/js and tests/browser hold the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.cost.models import MODELS, PublishedModel
from helpers.stepper import StepTime, page
from helpers.stepper.format import unit
from helpers.stepper.step_time import FILLS
from tests.pictures import boxes, misplaced, words
from tests.work_cases import CASES


def test_the_numbers_of_an_example() -> None:
    """By hand: 512 · 501 · 131,072 + 2 · 7,504,924,672 bytes at 3.35e12 a second; 14.5 ms with overlap."""
    still = StepTime(users=512).still()
    assert still.alt == (
        "step: rows 10.0 ms, products 7.77 ms; bandwidth: rows 10.0 ms, weights 4.48 ms; "
        "compute: attention 136 µs, products 7.77 ms; memory: weights 15.0 GiB, rows 31.3 GiB."
    )
    settings, answer, room, left = still.sentences
    assert settings == "model: Llama-3.1-8B; card: H100; tokens each: 500; users at once: 512."
    assert answer == (
        "A step takes at least 17.8 ms: 56.2 tokens a second for each of 512 users, 28,758 for all. "
        "It is memory-bound; the longest part is reading rows of K and V, 10.0 ms."
    )
    assert room.startswith(
        "15.0 GiB of weights and 31.3 GiB of rows, of 80.0 GiB. 1,063 users with 501 tokens"
    )
    assert left.endswith("numbers of 16 bits.")
    other = StepTime(users=512, overlap=True, cards=2, bandwidth_reached=0.8)
    assert (
        other.still()
        .sentences[0]
        .endswith("cards: 2; % of bandwidth reached: 80.0; rows are read while matrices multiply: yes.")
    )
    assert "takes at least 14.5 ms:" in StepTime(users=512, overlap=True).answer


@pytest.mark.parametrize("case", CASES)
def test_the_picture_shows_the_bars_to_scale(case: dict[str, Any]) -> None:
    view = StepTime(**case)
    figure, bars = view.still().figure(), view.bars()
    assert misplaced(figure) == []
    drawn = words(figure)
    assert all(piece.text in drawn for bar in bars for piece in bar.pieces)
    assert [bar.name for bar in bars] == ["step", "bandwidth", "compute", "memory"]
    for term, fill in FILLS.items():
        pieces = [piece.length / bar.whole for bar in bars for piece in bar.pieces if piece.term == term]
        wide = [box.get_width() for box in boxes(figure, fill) if box.get_height() > 12]
        assert wide == pytest.approx([max(1, share * (424 - 100)) for share in pieces])
    ends = [0, *(piece.start + piece.length for piece in bars[0].pieces)]
    assert [piece.start for piece in bars[0].pieces] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx(view.step.total)


def test_a_model_of_ones_own_stands_among_the_others() -> None:
    own = PublishedModel("mine", "", 2, 4, 2, 8, 32, 64, 100, 512, True, 12_345)
    view = StepTime(own, tokens=10, users=2)
    offered = json.loads(view.data)
    assert [model["name"] for model in offered["models"][-2:]] == [[*MODELS][-1], "mine"]
    assert offered["models"][-1]["kinds"] == [
        {"layers": 2, "entry_size": 32, "window": None, "state": False, "kv_heads": 2, "pair": 128}
    ]
    assert view.options["case"]["model"] == "mine"
    assert repr(view) == "StepTime(mine on H100, 2 users of 10 tokens)"


def test_three_digits_and_a_prefix() -> None:
    said = {"15.0 GB": 15.01e9, "1.00 GB": 999.96e6, "999 MB": 999.4e6, "100 B": 99.96, "1,258 s": 1258.4}
    assert [unit(x, text[-1]) for text, x in said.items()] == [*said]


def test_a_model_s_name_ends_no_script() -> None:
    own = PublishedModel("</script><b>", "", 2, 4, 2, 8, 32, 64, 100, 512, True, 12_345)
    assert "</script><b>" not in page.build("Own", [page.Section(view=StepTime(own))])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "Llama-9"}, "Llama-9 is not a file; expected config.json, .* or one of .'GPT-2 small'"),
        ({"card": "abacus"}, "got card='abacus', expected one of .'RTX 4090'"),
        ({"kv_bits": 3}, "got kv_bits=3, expected one of"),
        ({"overlap": "no"}, r"got overlap='no', expected one of \[True, False\]"),
        ({"users": 0}, "users is 0"),
        ({"new_tokens": 65}, "tokens a verification: got 65; expected a number from 1 to 64"),
        ({"collective": 1}, "µs a collective: got 1000000.0; expected a number from 0 to 1,000"),
    ],
)
def test_what_is_no_case_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepTime(**wrong)
