"""Notebook 05: its model is that of helpers, and its test finds the caches that it breaks."""

from __future__ import annotations

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from transformers import LlamaConfig

from helpers.chapters import n05
from helpers.model.cache import GrowingCache
from helpers.recording.diary import load_diary
from tests.machine import ROOT

CELLS = {
    cell["id"]: cell
    for cell in json.loads((ROOT / "notebooks/05_keep_it_right.ipynb").read_text("utf-8"))["cells"]
}


@cache
def names_of_page() -> dict[str, Any]:
    """Run the cells that define the page's model, caches and test; return their names."""
    names: dict[str, Any] = {}
    cells = [
        "c05-02",
        "c05-cache",
        "c05-attend",
        "c05-run",
        "c05-broken-1",
        "c05-broken-2",
        "83ce1e79",
        "c05-04",
    ]
    with torch.inference_mode():
        for cell_id in cells:
            exec("".join(CELLS[cell_id]["source"]), names)
    torch.set_grad_enabled(True)
    return names


@torch.inference_mode()
def test_its_logits_are_those_of_helpers() -> None:
    page = names_of_page()
    ids = page["tokenizer"].encode(" ".join(token.text for token in load_diary().sequences[0].tokens))
    ours, theirs = page["KVCache"](), GrowingCache(page["model"].config)
    passes = [page["run"](ids[start:stop], ours) for start, stop in ((0, 12), (12, 23), (23, 24), (24, 47))]
    assert torch.allclose(torch.cat(passes), page["model"](torch.tensor([ids]), theirs)[0], atol=1e-4)
    for mine, other in ((ours.keys, theirs.k), (ours.values, theirs.v)):
        assert torch.allclose(mine[3], other[3][0], atol=1e-4)


@torch.inference_mode()
def test_each_cache_is_broken_as_the_page_says() -> None:
    page = names_of_page()
    right = page["replies"]["kept right"]
    wrong = {name: n05.first_difference_position(reply, right) for name, reply in page["replies"].items()}
    assert [name for name, place in wrong.items() if place is None] == [
        "kept right",
        "positions one too high",
    ]
    assert min(place for place in wrong.values() if place) > 1, "prefill is spared"
    off = {
        name: page["differences"](page["run"], kind(), page["prompt"], right[:-1])
        for name, kind in page["caches"].items()
    }
    assert [steps[0] for steps in off.values()] == [0.0] * 7
    assert [name for name, steps in off.items() if steps[1] < 1e-4] == ["kept right", "positions stand still"]
    assert max(off.pop("kept right")) < 1e-4
    assert min(max(steps) for steps in off.values()) > 0.4


def run_fence(names: dict[str, Any]) -> None:
    exec("".join(CELLS["c05-limit"]["source"]).split("```")[1].removeprefix("python"), names)


def test_the_test_to_copy_is_one_of_transformers() -> None:
    class FirstLost(transformers.DynamicCache):
        def update(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
            k, v = super().update(*args, **kwargs)
            return k, v * (torch.arange(v.shape[2]) > 0)[:, None] if v.shape[2] > 3 else v

    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1}
    model = transformers.LlamaForCausalLM(LlamaConfig(vocab_size=19, intermediate_size=22, **sizes)).eval()
    names = {
        "torch": torch,
        "transformers": transformers,
        "model": model,
        "prompt": [3, 1, 4],
        "reply": [1, 5],
    }
    names["differences"] = names_of_page()["differences"]
    run_fence(names)
    for dtype in (torch.float32, torch.bfloat16):  # NumPy has no bfloat16
        names["model"] = model.to(dtype)
        with pytest.raises(AssertionError):
            run_fence(names | {"transformers": SimpleNamespace(DynamicCache=FirstLost)})


def test_the_first_wrong_word_is_marked_and_full_stops_join_theirs() -> None:
    right = ["It", "is", ".", "So", "<eos>"]
    texts = [
        right,
        ["It", "was", ".", "So"],
        ["It", "is", "so", "."],
        ["It", "is", ".", "<eos>"],
        [".", "is"],
    ]
    message = repr(n05.MarkedReplies({str(n): text for n, text in enumerate(texts)}))
    wanted = ["0: It is. So", "1: It [was.] So …", "2: It is [so.] …", "3: It is.", "4: [.] is …"]
    assert message.splitlines() == wanted
    assert "<mark><b>was.</b></mark> So …" in n05.MarkedReplies({"a": right, "b": texts[1]})._repr_html_()
