"""What a provider bills and an engine processes, computed token by token, and by hand for three chats."""

from __future__ import annotations

from typing import Any

import IPython.display
import pytest

from helpers.chapters import n17
from helpers.chapters.n17 import Client
from helpers.cost.service import Service
from helpers.serve.pages import PageManager
from tests.pictures import misplaced

SMALL = Service(tool_tokens=43, system_tokens=20, message_tokens=7, reply_tokens=10, turns=4)
USUAL = "tools | system | chat question |"
CLIENTS = {
    "nothing changes": Client(USUAL.split()),
    "a clock": Client("tools | clock system | chat question |".split()),
    "shuffled": Client(USUAL.split(), shuffle_tools=True),
    "in front": Client("tools system | summary chat question |".split()),
    "at the end": Client("tools | system chat question | summary |".split()),
    "dropped": Client(USUAL.split(), drop_thoughts=True),
    "no breakpoint": Client("tools system chat question".split()),
    "an odd order": Client("| question chat | clock tools".split(), True, True),
}


def letters(text: n17.PromptPieces) -> list[Any]:
    """Return a text as tokens: pairs of a part and the position in it."""
    return [(what, n) for what, many in text for n in range(many)]


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("size", [4, 16])
def test_cached_tokens_match_an_engines_pages(name: str, size: int) -> None:
    pages, client = PageManager(4000, size), CLIENTS[name]
    turns = n17.bill_chat(client, SMALL, page_size=size)
    for chat in range(2):
        for n in range(SMALL.turns):
            prompt = letters(client.prompt(SMALL, chat, n)[0])
            table = pages.match_prefix(prompt)
            if chat:
                assert size * len(table) == turns[n].n_cached
            kept = [
                *prompt,
                *letters(n17.reply_pieces(SMALL, chat, n))[:-1],
            ]  # the newest token has no KV entry
            table += [pages.allocate() for _ in range(pages.pages_needed(len(kept)) - len(table))]
            pages.cache_full_pages(table, kept, 0, len(kept))


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("shortest", [1, 50, 10**6])
def test_billed_tokens_match_a_cache_with_breakpoints(name: str, shortest: int) -> None:
    client, entries = CLIENTS[name], list[list[Any]]()
    for chat in range(2):
        turns = n17.bill_chat(client, SMALL, shortest)
        for n in range(SMALL.turns):
            text, marks = client.prompt(SMALL, chat, n)
            prompt = letters(text)
            ends = [prompt[: len(letters(text[:mark]))] for mark in marks]
            kept = [end for end in ends if len(end) >= shortest]
            last = max(map(len, kept), default=0)
            read = max((len(e) for e in entries if prompt[: len(e)] == e and len(e) <= last), default=0)
            if chat:
                billed = turns[n].n_read, turns[n].n_written, turns[n].n_plain
                assert billed == (read, last - read, len(prompt) - last)
                assert sum(size for _, size in turns[n].parts) == len(prompt)
            entries += kept


def test_three_bills_by_hand() -> None:
    """Ten turns: 6,300 tokens, and 550 more in each."""
    usual, clock, shuffled = (
        n17.bill_chat(client, Service())
        for client in (Client(), CLIENTS["a clock"], Client(shuffle_tools=True))
    )
    tokens = sum(6300 + 550 * n for n in range(10))
    read = 6000 + sum(6300 + 550 * n for n in range(9))
    assert n17.dollars_per_thousand_chats(usual) == pytest.approx((0.2 * read + 5 * (tokens - read)) / 1000)
    assert n17.dollars_per_thousand_chats(clock) == pytest.approx(
        (0.2 * 40_000 + 5 * (tokens + 80 - 40_000)) / 1000
    )
    assert n17.dollars_per_thousand_chats(shuffled) == pytest.approx(5 * tokens / 1000)
    assert n17.dollars_without_breakpoints(usual) == pytest.approx(4 * tokens / 1000)


def test_a_long_pause_keeps_only_prefixes_others_use() -> None:
    tokens, shared = sum(6300 + 550 * n for n in range(10)), {"nothing changes": 6000, "a clock": 4000}
    for name in ("nothing changes", "a clock", "shuffled", "in front", "dropped"):
        turns = n17.bill_chat(CLIENTS[name], Service(pause_seconds=301))
        assert [one.n_read for one in turns] == [shared.get(name, 0 if name == "shuffled" else 6000)] * 10
    usual = n17.bill_chat(Client(), Service(pause_seconds=301))
    assert sum(one.n_written for one in usual) == tokens - 60_000 == 27_750
    assert n17.bill_chat(Client(), Service(pause_seconds=300)) == n17.bill_chat(Client(), Service())


def test_widget_moves_parts_and_changes_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(IPython.display, "display", lambda bundle, raw, **_: shown.append(bundle))
    explorer = n17.ClientBillExplorer(Service())
    explorer._ipython_display_()
    assert "cost 43 dollars" in shown[1]["text/html"]
    assert misplaced(explorer.still().figure()) == []
    *knobs, reset, output, picture, _ = explorer.widget.children
    first = output.value, picture.value
    knobs[0].value = [part.replace("|", n17.TAG) for part in CLIENTS["a clock"].parts]
    assert "<b>247 dollars" in output.value
    assert "clock 8" in picture.value
    knobs[1].value = 4096  # more than the tools have
    assert "<b>439 dollars" in output.value
    knobs[0].value = [n17.TAG] * 5
    assert "got 5 breakpoints; expected" in output.value
    reset.click()
    assert (output.value, picture.value) == first
    for knob in knobs[2:]:
        knob.value = True
    assert "without a breakpoint 333" in output.value


def test_unknown_parts_are_rejected() -> None:
    with pytest.raises(ValueError, match="got tool; expected tools, system, clock"):
        Client(["tool"])
