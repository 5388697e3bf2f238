"""A chat on an engine: each turn sends the whole conversation again, and edits decide what is found of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from helpers.serve.engine import Engine


@dataclass(frozen=True)
class Message:
    """What somebody says.

    Args:
        role: "system", "tool", "user" or "assistant".
        tokens: ids.
    """

    role: str
    tokens: tuple[int, ...]


Messages = list[Message]
Edit = Callable[
    [Messages, int], Messages
]  # what a client sends instead, given the number of the turn, from 0


class Turn(NamedTuple):
    """What one turn took: tokens of its prompt used again, those that ran, and those of the reply."""

    found: int
    ran: int
    reply: int


@dataclass
class Chat:
    """A conversation; `say` sends a turn.

    Args:
        engine: serves it. It keeps no conversation: what was said is sent again, and found in its pages.
        template: writes messages as the ids of a prompt.
        messages: what stands before the first turn.
        edit: changes what is sent; None sends all as it was said.

    Attributes:
        turns: what each took.
    """

    engine: Engine
    template: Callable[[Messages], list[int]]
    messages: Messages
    edit: Edit | None = None
    turns: list[Turn] = field(default_factory=list)

    def say(self, tokens: Sequence[int], max_new: int) -> list[int]:
        """Send one turn with all before it; return the reply. Errors as in `Engine.add`."""
        sent = [*self.messages, Message("user", tuple(tokens))]
        number = len(self.turns)
        prompt = self.template(self.edit([*sent], number) if self.edit else sent)
        key = (id(self), number)
        self.engine.add(key, prompt, max_new)
        reply = self.engine.run_all()[key]
        self.messages = [*sent, Message("assistant", tuple(reply))]
        found = self.engine.found[key]
        self.turns.append(Turn(found, len(prompt) - found, len(reply)))
        return reply


def with_clock(hours: Sequence[int]) -> Edit:
    """Put a word that changes each turn in front of all."""
    return lambda messages, turn: [Message("system", (hours[turn % len(hours)],)), *messages]


def tools_turned(messages: Messages, turn: int) -> Messages:
    """Send the tools in another order each turn."""
    at = [n for n, one in enumerate(messages) if one.role == "tool"]
    sent = [*messages]
    for n, place in enumerate(at):
        sent[place] = messages[at[(n + turn) % len(at)]]
    return sent


def thinking_stripped(keep: int) -> Edit:
    """Send of each earlier reply its last tokens only: what came before was thinking."""
    return lambda messages, turn: [
        replace(one, tokens=one.tokens[-keep:]) if one.role == "assistant" else one for one in messages
    ]


def summary(messages: Messages) -> Message:
    """The first three tokens of all that the user said: it changes each turn."""
    return Message(
        "system", tuple(token for one in messages if one.role == "user" for token in one.tokens[:3])
    )


def summary_first(messages: Messages, turn: int) -> Messages:
    """Put a summary behind the instructions and tools, in front of the conversation."""
    at = next(n for n, one in enumerate(messages) if one.role == "user")
    return [*messages[:at], summary(messages), *messages[at:]]


def summary_last(messages: Messages, turn: int) -> Messages:
    """Put a summary behind all."""
    return [*messages, summary(messages)]
