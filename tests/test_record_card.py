"""Recording a card: the requested steps are timed, stored with predictions, and shown in notebook 16."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from helpers.chapters import n16
from helpers.model import shipped
from helpers.model.cache import Cache
from helpers.model.generate import next_token_logits
from helpers.model.transformer import Transformer
from tools import card


def test_each_pair_that_fits_is_timed_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = set()

    def noting_run(model: Transformer, newest: torch.Tensor, cache: Cache) -> torch.Tensor:
        ran.add((len(newest), cache.length))
        return next_token_logits(model, newest, cache)

    token_nbytes = 2048  # KV entries of one token in the shipped model, in float32
    gib = 2 * 1001 * token_nbytes / 2**30
    changes = {"run": noting_run, "RECORDED": tmp_path, "USERS": (1, 2, 3), "TOKENS": (500, 1000)}
    for name, value in changes.items():
        monkeypatch.setattr(card, name, value)
    monkeypatch.setattr(card, "DEVICE", "cpu")
    monkeypatch.setattr(sys, "argv", ["", "gqa", "--card", "H100", "--dtype", "float32", "--gib", str(gib)])
    card.main()
    recorded = json.loads(next(tmp_path.glob("card_*.json")).read_text(encoding="utf-8"))
    fits = {(1, 500), (1, 1000), (2, 500), (2, 1000), (3, 500)}
    assert ran == fits
    assert {(one["users"], one["tokens"]) for one in recorded["steps"] if one["ms"]} == fits
    assert [one["ms"] for one in recorded["steps"]][-1] is None
    for one in recorded["steps"]:
        nbytes = 4 * shipped.CONFIG.n_parameters + one["users"] * (one["tokens"] + 1) * token_nbytes
        assert one["predicted"] == pytest.approx(1000 * nbytes / 3.35e12, rel=1e-3)
    shown = n16.steps_measured(tmp_path)
    assert [name for name in shown if "gqa" in name] == [f"{n}, gqa on {recorded['device']}" for n in (1, 2)]
    one = recorded["steps"][1]
    assert shown[f"1, gqa on {recorded['device']}"][:3] == [1000, one["predicted"], one["ms"]]
