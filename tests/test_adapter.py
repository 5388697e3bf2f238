"""Adapters on the engine: the same prompt finds the rows of the same model alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from helpers.model.adapter import with_adapter
from helpers.model.generate import generate
from helpers.serve.pages import PageManager
from tests.planted import Bug, Planted
from tests.test_serve_engine import engine_of
from tests.tiny import tiny

torch.set_num_threads(1)
planted = Planted()

MODEL = tiny(dtype=torch.float64, max_seq_len=120).requires_grad_(False)
ADAPTED = {None: MODEL, "a": with_adapter(MODEL), "b": with_adapter(MODEL, seed=1)}
served = partial(engine_of, MODEL, n_pages=80, eos_ids=())


def test_adapters_change_words_and_share_no_rows() -> None:
    """The same prompt by the model and two adapters, in one batch and one after the other, twice."""
    engine, prompt = served(adapters={name: ADAPTED[name] for name in "ab"}), [5, 6, 7, 8] * 4
    alone = {name: list(generate(model, prompt, 8, eos_ids=())) for name, model in ADAPTED.items()}
    assert len({tuple(reply) for reply in alone.values()}) == 3
    for turn in range(2):
        for name in ADAPTED:
            engine.add((turn, name), prompt, 8, adapter=name)
        replies = engine.run_all()
        assert {name: replies[turn, name] for name in ADAPTED} == alone
    assert [one.n_cached for one in engine.sequences.values()] == [0, 0, 0, 12, 12, 12]


def test_an_adapter_changes_keys_alone() -> None:
    for (name, old), new in zip(MODEL.named_parameters(), ADAPTED["a"].parameters(), strict=True):
        ratio = float((new - old).norm() / old.norm())
        assert ratio == pytest.approx(float("k_proj.weight" in name))


KEYS = test_adapters_change_words_and_share_no_rows


@planted("a key without the adapter", [KEYS], "vllm #44701", of=PageManager.prefix_key)
def _(old: Any, self: PageManager, adapter: Any) -> Any:
    return old(self, None)


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
