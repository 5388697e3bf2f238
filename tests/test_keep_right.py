"""Notebook 05: the diary's model in NumPy is that of helpers, and its caches are broken as the page says."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import LlamaConfig

from helpers.chapters import n05
from helpers.model import shipped
from helpers.model.cache import GrowingCache
from helpers.recording.diary import load_diary
from tests.machine import ROOT

PAGE = ROOT / "notebooks/05_keep_it_right.ipynb"
RIGHT = n05.reply_with_each_cache()[n05.CORRECT_CACHE]


def taught(cell_id: str, **names: Any) -> dict[str, Any]:
    """Run a cell of the page, or a cell's fence, with these names."""
    cell = next(cell for cell in json.loads(PAGE.read_text("utf-8"))["cells"] if cell["id"] == cell_id)
    source = "".join(cell["source"])
    names |= {"np": np, "check": n05}
    exec(source if cell["cell_type"] == "code" else source.split("```")[1].removeprefix("python"), names)
    return names


@torch.inference_mode()
def test_its_logits_are_those_of_helpers() -> None:
    model, tokenizer = shipped.load_shipped()
    words = [token.text for token in load_diary().sequences[0].tokens]
    ids = tokenizer.encode(" ".join(words))
    rows = n05.ModelCache()
    logits = [
        n05.run_pass(words[start:stop], rows) for start, stop in ((0, 12), (12, 23), (23, 24), (24, 47))
    ]
    kept = GrowingCache(model.config)
    assert np.concatenate(logits) == pytest.approx(model(torch.tensor([ids]), kept)[0].numpy(), abs=1e-4)
    for ours, theirs in ((rows.k, kept.k), (rows.v, kept.v)):
        assert ours[3].swapaxes(0, 1) == pytest.approx(theirs[3][0].numpy(), abs=1e-4)


def test_each_cache_is_broken_as_the_page_says() -> None:
    assert n05.generate_reply(n05.ModelCache(), *([word] for word in n05.split_words(n05.PROMPT))) == RIGHT
    wrong = {
        name: n05.first_difference_position(reply, RIGHT)
        for name, reply in n05.reply_with_each_cache().items()
    }
    assert [name for name, place in wrong.items() if place is None] == [
        n05.CORRECT_CACHE,
        n05.SHIFTED_POSITIONS,
    ]
    assert min(place for place in wrong.values() if place) > 1, "prefill is spared"
    prompt, off = n05.split_words(n05.PROMPT), {}
    without = n05.run_pass([*prompt, *RIGHT[:1]], None)[-2:]
    for name, kind in n05.CACHE_CLASSES.items():
        cache = kind()
        kept = [n05.run_pass(new, cache)[-1] for new in (prompt, RIGHT[:1])]
        off[name] = np.abs(np.array(kept) - without).max(axis=1) > 1e-5
    assert not any(prefill for prefill, _ in off.values())
    assert [name for name, (_, step) in off.items() if not step] == [n05.CORRECT_CACHE, n05.FROZEN_POSITIONS]
    farthest = [
        float(line[-1]) for line in n05.cache_differences_table(taught("83ce1e79")["largest_difference"]).rows
    ]
    assert farthest[0] < 1e-5 < 1 < farthest[-1] < min(farthest[1:-1])
    lost = " ".join(
        n05.reply_with_each_cache()[next(name for name in n05.CACHE_CLASSES if "first 20" in name)]
    )
    assert "Signed by" in lost
    assert "Signed by Mia" not in lost


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
    names |= taught("83ce1e79")
    taught("2a78f03b", **names)
    for dtype in (torch.float32, torch.bfloat16):  # NumPy has no bfloat16
        names["model"] = model.to(dtype)
        with pytest.raises(AssertionError):
            taught("2a78f03b", **(names | {"transformers": SimpleNamespace(DynamicCache=FirstLost)}))


def test_a_readers_answers_write() -> None:
    texts = list(n05.replies_reusing_entries(n05.reusable_prefix_length).parts_by_name.values())
    assert len(texts) == 3
    assert texts[0] == texts[-1]
    assert len(n05.replies_reusing_entries(lambda *args: ...).parts_by_name) == 2
    assert "[Emma] walked" in repr(n05.replies_reusing_entries(lambda old, new: len(old))).splitlines()[-1]
    assert "With yours, TypeError" in repr(n05.replies_reusing_entries(lambda words: 0))


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
