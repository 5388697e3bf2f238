"""Notebook 05: its model is that of helpers, and its test finds the caches that it breaks."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
import torch
import transformers

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
        "c05-run",
        "c05-broken-1",
        "c05-broken-2",
        "83ce1e79",
        "c05-04",
        "c05-table",
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
    reply = right[:-1]
    steps = [page["prompt"], *([token] for token in reply)]
    off = {name: page["differences"](page["run"], kind(), steps) for name, kind in page["caches"].items()}
    assert max(prefill for prefill, *_ in off.values()) < 1e-4
    assert [name for name, found in off.items() if found[1] < 1e-4] == ["kept right", "positions stand still"]
    assert max(off.pop("kept right")) < 1e-4
    assert min(max(found) for found in off.values()) > 0.4


def test_the_replies_at_the_beginning_are_those_of_the_caches() -> None:
    shown = re.findall(r"^- \w: (.*?)(?: …)?$", "".join(CELLS["c05-which"]["source"]), re.MULTILINE)
    page = names_of_page()
    written = [page["tokenizer"].decode(reply).replace(" .", ".") for reply in page["replies"].values()]
    assert len(shown) == len(written)
    for reply in written:
        assert any(reply.startswith(begin) for begin in shown), reply
    for begin in shown:
        assert any(reply.startswith(begin) for reply in written), begin


@torch.inference_mode()
def test_a_piece_of_several_tokens_shows_what_single_ones_hide() -> None:
    page = names_of_page()

    class PieceFromTopLeft(page["KVCache"]):  # type: ignore[misc, name-defined, valid-type]
        def mask(self, T: int) -> torch.Tensor:
            return page["MaskFromTopLeft"].mask(self, T) if T > 1 else super().mask(T)

    exec("".join(CELLS["c05-chunks"]["source"]), page)
    for kind in (PieceFromTopLeft, page["NoMaskInPieces"], page["PiecesFromZero"]):
        single, pieces = (page["differences"](page["run"], kind(), page[n]) for n in ("steps", "passes"))
        assert max(single) < 1e-4
        assert pieces[0] < 1e-4
        assert pieces[1] > 1


@torch.inference_mode()
def test_what_is_kept_of_another_text_is_tested() -> None:
    page = names_of_page()
    encode = page["tokenizer"].encode
    old, new = encode("Today weather is so nice. Emma swam."), encode("Today weather is so nice. Mia swam.")
    for n, least, most in ((6, 0, 1e-4), (7, 0.1, 100)):  # 7: the entry of Emma is kept
        cache = page["KVCache"]()
        page["run"](old, cache)
        cache.truncate(n)
        assert least <= max(page["differences"](page["run"], cache, [new[n:]], kept=new[:n])) < most
    with pytest.raises(AssertionError, match="one row"):
        page["differences"](lambda tokens, cache: page["run"](tokens * 2), None, [new])


@torch.inference_mode()
def test_the_test_to_copy_is_one_of_transformers() -> None:
    class FirstLost(transformers.DynamicCache):
        def update(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
            k, v = super().update(*args, **kwargs)
            return k, v * (torch.arange(v.shape[2]) > 0)[:, None] if v.shape[2] > 3 else v

    page = names_of_page()
    for cell_id in ("c05-chunks", "c05-library"):
        exec("".join(CELLS[cell_id]["source"]), page)
    fence = "".join(CELLS["c05-format"]["source"]).split("```")[1].removeprefix("python")
    exec(fence, page | {"YourCache": transformers.DynamicCache})
    for kind in (FirstLost, page["OneTooHigh"]):
        with pytest.raises(AssertionError):
            exec(fence, page | {"YourCache": kind})


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
