"""The bill of notebook 17, token by token and by hand, and its page manager compared with the engine's."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from typing import Any

import nbformat
import pytest

from helpers.chapters import n17
from helpers.chapters.n17 import MARK, Prompt
from helpers.serve.pages import PageManager
from tests.machine import ROOT

TOOLS, SYSTEM = ("tools", 4000), ("system", 2000)
STORED = [(TOOLS,), (TOOLS, SYSTEM)]


def chat(turn: int) -> list[n17.Piece]:
    """Return the questions and replies before a turn, and its question."""
    pieces = [piece for n in range(turn) for piece in ((f"question {n}", 300), (f"reply {n}", 250))]
    return [*pieces, (f"question {turn}", 300)]


CLIENTS: dict[str, list[Prompt]] = {
    "nothing changes": [[TOOLS, MARK, SYSTEM, MARK, *chat(n), MARK] for n in range(10)],
    "the time": [[TOOLS, MARK, (f"time {n}", 8), SYSTEM, MARK, *chat(n), MARK] for n in range(10)],
    "new tools": [[(f"tools {n}", 4000), MARK, SYSTEM, MARK, *chat(n), MARK] for n in range(10)],
    "note at the end": [[TOOLS, MARK, SYSTEM, *chat(n), MARK, (f"note {n}", 200)] for n in range(10)],
    "one mark": [[TOOLS, SYSTEM, *chat(n), MARK] for n in range(10)],
    "no mark": [[TOOLS, SYSTEM, *chat(n)] for n in range(10)],
    "longer than its marks": [[TOOLS, MARK, SYSTEM, *chat(n), *[MARK] * (n < 5)] for n in range(10)],
}


def letters(text: Prompt) -> list[Any]:
    """Return a text as tokens: for each two, the piece and the position in it."""
    return [(what, n) for what, many in text for n in range(many // 2)]


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("shortest", [1, 4001, 10**6])
def test_billed_tokens_match_a_cache_with_breakpoints(name: str, shortest: int) -> None:
    entries = [letters(entry) for entry in STORED]
    for prompt, turn in zip(CLIENTS[name], n17.bill(CLIENTS[name], STORED, shortest), strict=True):
        text = letters(prompt)
        ends = [at for at, piece in enumerate(prompt) if piece == MARK]
        kept = [letters(prompt[:at]) for at in ends if sum(n for _, n in prompt[:at]) >= shortest]
        last = max(map(len, kept), default=0)
        read = max((len(e) for e in entries if text[: len(e)] == e and len(e) <= last), default=0)
        assert [turn["read"] // 2, turn["input"] // 2] == [read, len(text) - last]
        assert sum(turn[kind] for kind in n17.FILLS) == sum(n for _, n in prompt)
        entries += kept


def test_three_bills_by_hand() -> None:
    """Ten turns: 6,300 tokens, and 550 more in each."""
    usual, time, tools = (n17.bill(CLIENTS[name], STORED) for name in [*CLIENTS][:3])
    tokens = sum(6300 + 550 * n for n in range(10))
    read = 6000 + sum(6300 + 550 * n for n in range(9))
    assert n17.prompt_dollars(usual) == pytest.approx((0.2 * read + 5 * (tokens - read)) / 1000)
    assert n17.prompt_dollars(time) == pytest.approx((0.2 * 40_000 + 5 * (tokens + 80 - 40_000)) / 1000)
    assert n17.prompt_dollars(tools) == pytest.approx(5 * tokens / 1000)


def manager_of_the_page() -> dict[str, Any]:
    """Run the cells of notebook 17 that define its page manager; return their names."""
    names: dict[str, Any] = {"hashlib": hashlib, "deque": deque}
    for cell in nbformat.read(ROOT / "notebooks" / "17_pages.ipynb", as_version=4).cells:
        if cell.id in ("c17-manager", "c17-names", "c17-sharing", "c17-take"):
            exec(cell.source, names)
    return names


@pytest.mark.parametrize("seed", range(8))
def test_the_pages_manager_shares_as_the_engines_does(seed: int) -> None:
    names, rng = manager_of_the_page(), random.Random(seed)
    short, engines, running = names["SharedPages"](12, 4), PageManager(12, 4), list[list[int]]()
    for _ in range(200):
        text = [rng.choice([1, 2]) for _ in range(rng.choice([3, 6, 9, 10, 13]))]
        if running and (rng.random() < 0.4 or not engines.can_allocate(text)):
            table = running.pop(rng.randrange(len(running)))
            short.release(table)
            engines.release(table)
        elif engines.can_allocate(text):
            table = engines.match_prefix(text)
            n_shared = len(table)
            for page in table:
                engines.incref(page)
            table += [engines.allocate() for _ in range(engines.pages_needed(len(text)) - n_shared)]
            engines.cache_full_pages(table, text, 4 * n_shared, len(text))
            assert names["take"](short, text) == (table, len(text) - 4 * n_shared)
            running.append(table)
        assert [*short.free] == [*engines.free]
        assert short.users == engines.ref_counts
