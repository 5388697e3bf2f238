"""StepTime, the Python face: data and errors; tests/js and tests/browser hold the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.cost.models import MODELS, PublishedModel
from helpers.stepper import StepTime, page


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
    assert repr(StepTime()) == "StepTime(Llama-3.1-8B on H100, 64 users of 500 tokens)"


def test_a_model_s_name_ends_no_script() -> None:
    own = PublishedModel("</script><b>", "", 2, 4, 2, 8, 32, 64, 100, 512, True, 12_345)
    assert "</script><b>" not in page.build_page("Own", [page.Section(view=StepTime(own))])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "Llama-9"}, "Llama-9 is not a file; expected config.json, .* or one of .'GPT-2 small'"),
        ({"card": "abacus"}, "got card='abacus', expected one of .'RTX 4090'"),
        ({"kv_bits": 3}, "got kv_bits=3, expected one of"),
        ({"overlap": "no"}, r"got overlap='no', expected one of \[True, False\]"),
        ({"users": 0}, "users is 0"),
        ({"new_tokens": 65}, "tokens per verification: got 65; expected a number from 1 to 64"),
        ({"collective": 1}, "µs per collective: got 1000000.0; expected a number from 0 to 1,000"),
    ],
)
def test_what_is_no_case_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepTime(**wrong)
