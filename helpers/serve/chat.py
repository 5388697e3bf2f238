"""A chat on an engine: each turn sends the whole conversation again, and edits decide what is found of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from helpers.serve.engine import Engine


@dataclass(frozen=True)
class Message:
    """What somebody says.

    Args:
        role: "system", "tool", "user" or "assistant".
        tokens: ids.
        name: what a figure calls it.
    """

    role: str
    tokens: tuple[int, ...]
    name: str = ""


Messages = list[Message]
Edit = Callable[
    [Messages, int], Messages
]  # what a client sends instead, given the number of the turn, from 0


class Turn(NamedTuple):
    """What one turn took: tokens of its prompt used again, those that ran, and those of the reply."""

    found: int
    ran: int
    reply: int


class Pair(NamedTuple):
    """Two turns, one after the other, as a server reads them.

    Attributes:
        before: the parts of the first text, its reply the last: names and tokens; those of one name are one.
        now: those of the second.
        found: tokens of the second that were used again.
    """

    before: list[tuple[str, int]]
    now: list[tuple[str, int]]
    found: int


@dataclass
class Chat:
    """A conversation; `say` sends a turn.

    Args:
        engine: serves it. It keeps no conversation: all messages are sent again, and found in its pages.
        template: writes messages as the ids of a prompt.
        messages: what stands before the first turn.
        edit: changes what is sent; None sends all unchanged.

    Attributes:
        turns: what each took.
        sent: what was sent in each, and the reply behind it.
    """

    engine: Engine
    template: Callable[[Messages], list[int]]
    messages: Messages
    edit: Edit | None = None
    turns: list[Turn] = field(default_factory=list)
    sent: list[Messages] = field(default_factory=list)

    def say(self, tokens: Sequence[int], max_new: int) -> list[int]:
        """Send one turn with all before it; return the reply. Whatever is raised, the chat stays as it was.

        Raises:
            ValueError: as in `Engine.add`, or logits that hold NaN or infinity.
        """
        number, engine = len(self.turns), self.engine
        messages = [*self.messages, Message("user", tuple(tokens), "chat")]
        sent = self.edit([*messages], number) if self.edit else messages
        key, prompt = (id(self), number), self.template(sent)
        try:
            engine.add(key, prompt, max_new)
            engine.run_all()
            one = engine.sequences[key]
            if one.error:
                raise one.error
            reply = one.reply
            answer = Message("assistant", tuple(reply), "chat")
            turn = Turn(one.n_cached, len(prompt) - one.n_cached, len(reply))
        except BaseException:
            if key in {one.request.id for one in [*engine.scheduler.waiting, *engine.scheduler.running]}:
                engine.cancel(key)
            raise
        after = [*messages, answer], [*self.sent, [*sent, answer]], [*self.turns, turn]
        self.messages, self.sent, self.turns = after
        return reply

    def pair(self, number: int) -> Pair:
        """Lay a turn, from 1 on, beside the one before."""
        end = len(self.template([]))  # what marks who speaks next

        def parts(messages: Messages) -> list[tuple[str, int]]:
            named = groupby(messages, lambda one: one.name)
            return [(name, len(self.template([*those])) - end) for name, those in named]

        return Pair(parts(self.sent[number - 1]), parts(self.sent[number][:-1]), self.turns[number].found)


def with_clock(hours: Sequence[int]) -> Edit:
    """Put a word that changes each turn in front of all."""
    return lambda messages, turn: [
        Message("system", (hours[turn % len(hours)],), "clock"),
        *messages,
    ]


def tools_turned(messages: Messages, turn: int) -> Messages:
    """Send the tools in another order each turn."""
    at = [n for n, one in enumerate(messages) if one.role == "tool"]
    sent = [*messages]
    for n, place in enumerate(at):
        sent[place] = messages[at[(n + turn) % len(at)]]
    return sent


def summary(messages: Messages) -> Message:
    """The first three tokens of all user messages: it changes each turn."""
    starts = (one.tokens[:3] for one in messages if one.role == "user")
    return Message("system", tuple(token for three in starts for token in three), "sum")


def summary_first(messages: Messages, turn: int) -> Messages:
    """Put a summary behind the instructions and tools, in front of the conversation."""
    at = next(n for n, one in enumerate(messages) if one.role == "user")
    return [*messages[:at], summary(messages), *messages[at:]]


def summary_last(messages: Messages, turn: int) -> Messages:
    """Put a summary behind all."""
    return [*messages, summary(messages)]
