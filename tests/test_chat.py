"""Chats and adapters on the engine: a turn finds the rows of the same model, up to an edit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch

from helpers.model.adapter import with_adapter
from helpers.model.generate import generate
from helpers.serve import chat
from helpers.serve.chat import Chat, Message, Messages
from helpers.serve.pages import PageManager
from tests.planted import Bug, Planted
from tests.test_serve_engine import engine_of
from tests.tiny import failing, tiny

torch.set_num_threads(1)
planted = Planted()

MODEL = tiny(dtype=torch.float64, max_seq_len=120).requires_grad_(False)
ADAPTED = {None: MODEL, "a": with_adapter(MODEL), "b": with_adapter(MODEL, seed=1)}
served = partial(engine_of, MODEL, n_pages=80, eos_ids=())
BEGIN = [Message("system", (5, 6, 7, 8, 9)), *(Message("tool", (n, n, n, n)) for n in (10, 11, 12))]
TURNS = [(13, 14, 15), (13, 5, 5), (14, 15, 5), (13, 13, 13)]


def template(messages: Messages) -> list[int]:
    return [token for one in messages for token in one.tokens]


def talk(
    edit: chat.Edit | None,
    size: int = 4,
    begin: Messages = BEGIN,
    turns: Sequence[tuple[int, ...]] = TURNS,
    max_new: int = 6,
) -> Chat:
    """Turns on an engine; each reply is the one of `generate`."""
    sent: list[list[int]] = []

    def noted(messages: Messages) -> list[int]:
        sent.append(template(messages))
        return sent[-1]

    talking = Chat(served(page_size=size), noted, [*begin], edit)
    for output in turns:
        reply = talking.say(output, max_new)
        assert reply == list(generate(MODEL, sent[-1], max_new, eos_ids=()))
        assert talking.messages[-2:] == [
            Message("user", output, "chat"),
            Message("assistant", (*reply,), "chat"),
        ]
        turn = talking.turns[-1]
        assert (turn.found + turn.ran, turn.reply, turn.found % size) == (len(sent[-1]), max_new, 0)
    return talking


EDITS: dict[str, tuple[chat.Edit | None, list[int]]] = {
    "none": (None, [0, 24, 32, 40]),
    "a clock": (chat.with_clock([5, 6, 7, 8]), [0, 0, 0, 0]),
    "a clock that comes round": (chat.with_clock([5, 6]), [0, 0, 24, 32]),
    "tools in another order": (chat.tools_turned, [0, 4, 4, 24]),
    "a summary first": (chat.summary_first, [0, 20, 20, 24]),
    "a summary last": (chat.summary_last, [0, 20, 28, 36]),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_turn_finds_what_was_sent_up_to_an_edit(name: str) -> None:
    edit, found = EDITS[name]
    for size in (1, 2, 3, 5):
        talk(edit, size)
    talking = talk(edit)
    assert [turn.found for turn in talking.turns] == found
    first, second = talking.turns[:2]
    before, now, found_again = talking.pair(1)
    assert [sum(n for _, n in parts) for parts in (before, now)] == [sum(first), sum(second[:2])]
    assert found_again == second.found


@pytest.mark.parametrize("wrong", ["NaN", "Ctrl-C"])
def test_a_turn_that_fails_leaves_the_chat_as_it_was(wrong: str) -> None:
    model = tiny(max_seq_len=120)
    talking = Chat(engine_of(model, n_pages=80, eos_ids=()), template, [*BEGIN])
    talking.say(TURNS[0], 4)
    before = [*talking.messages], [*talking.turns], [*talking.sent]
    if wrong == "NaN":
        hook = model.lm_head.register_forward_hook(lambda *given: given[-1] * math.nan)
        with pytest.raises(ValueError, match="hold NaN or infinity"):
            talking.say(TURNS[1], 4)
        hook.remove()
    else:
        with failing(model, "layers.1"), pytest.raises(KeyboardInterrupt):
            talking.say(TURNS[1], 4)
    assert before == (talking.messages, talking.turns, talking.sent)
    assert not any(talking.engine.scheduler.pages.owners)
    prompt = [*template(before[0]), *TURNS[1]]
    assert talking.say(TURNS[1], 4) == list(generate(model, prompt, 4, eos_ids=()))


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


CHAT, KEYS = test_a_turn_finds_what_was_sent_up_to_an_edit, test_adapters_change_words_and_share_no_rows


@planted("a key without the adapter", [KEYS], "vllm #44701", of=PageManager.prefix_key)
def _(old: Any, self: PageManager, adapter: Any) -> Any:
    return old(self, None)


@planted("a turn hits rows behind an edit", [CHAT], "openvino.genai #3722", of=PageManager.match_prefix)
def _(old: Any, self: PageManager, tokens: Any, adapter: Any = None) -> list[int]:
    """Look a page up by its own tokens, whatever stands before it."""
    by_tokens, table = {held: page for (_, held), page in self.found.items()}, []
    for end in range(self.page_size, len(tokens), self.page_size):
        if (page := by_tokens.get(tuple(tokens[end - self.page_size : end]))) is None:
            break
        table.append(page)
    return table


@pytest.mark.parametrize("bug", planted.bugs, ids=str)
def test_it_is_caught_by_the_tests_that_it_names(bug: Bug) -> None:
    assert bug.missed_by() == []
