"""The figures, the guess and the exercise of notebook 25, your own server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

from helpers.check.exercise import Case, Exercise
from helpers.check.guess import Guess
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.tables import Table
from helpers.drawing.words import SMALL, pluralize, text_width
from helpers.serve.endpoint import Settings
from helpers.serve.sequence import Request
from helpers.serve.simulation import simulate

SHOWN = Settings(slots=5, token_budget=96, reached=0.8)  # of the server in the two pictures at the top
LONG_PROMPT = 800  # tokens


class TimedReply(Protocol):
    """A reply of the notebook: when its request was sent, ms, and when each piece came, ms after that."""

    sent: float
    came: Sequence[float]


def timed_replies(jobs: Sequence[tuple[float, int, int]]) -> list[TimedReply]:
    """Simulate requests to the server in the pictures.

    Args:
        jobs: for each request, in order of time, when it is sent (s), the number of tokens of its prompt,
            which shares none with another prompt, and that of its reply.
    """
    requests = [Request(k, [1000 * k + i for i in range(n)], reply) for k, (_, n, reply) in enumerate(jobs)]
    arrivals = [(sent, request) for (sent, *_), request in zip(jobs, requests, strict=True)]
    times = simulate(SHOWN.scheduler(), arrivals, SHOWN.seconds)
    return [
        SimpleNamespace(sent=1000 * t.arrived, came=[1000 * (end - t.arrived) for end in t.token_times])
        for t in times.values()
    ]


def sixteen_at_once() -> Picture:
    """Draw sixteen replies that were asked for at the same moment."""
    return streams(timed_replies([(0.0, 16, 24)] * 16), title="Sixteen requests at the same moment")


def long_prompt_arrives() -> Picture:
    """Draw a reply in whose middle another request brings a long prompt."""
    replies = timed_replies([(0.0, 16, 40), (0.11, LONG_PROMPT, 1)])
    return streams(replies, ["short", "long"], f"A prompt of {LONG_PROMPT} tokens arrives")


def streams(replies: Sequence[TimedReply], names: Sequence[str] = (), title: str = "") -> Picture:
    """Draw each reply as a lane over time: a bar for the pause, and a tick for each piece of text.

    Args:
        replies: the replies, from top to bottom; each has at least one piece.
        names: a name for each lane, or none.
        title: the heading, or "".
    """
    start = min(reply.sent for reply in replies)
    end = max(reply.sent + reply.came[-1] for reply in replies) - start
    high = 17.0 if len(replies) > 4 else 30.0

    def draw(sheet: Sheet) -> None:
        top = 18.0
        if title:
            sheet.heading(title)
            top += 28
        sheet.box(18, top - 6, 26, 12, fill="key fill", edge="key", radius=2)
        sheet.note(52, top, "the pause")
        x = 52 + text_width("the pause", SMALL) + 22
        for n in range(4):
            sheet.line((x + 7 * n, top - 6), (x + 7 * n, top + 6), colour="generated", width=1.4)
        sheet.note(x + 30, top, "a piece of text")
        top += 18
        left = 18 + max([text_width(name, SMALL) + 10 for name in names], default=0)
        axes = sheet.add_axes(left, top, sheet.width - 22, top + high * len(replies), "milliseconds")
        axes.set(xlim=(-0.004 * end, 1.01 * end), ylim=(len(replies), 0))
        axes.set_yticks([])
        for n, reply in enumerate(replies):
            at = reply.sent - start
            middle = (n + 0.5, n + 0.5)
            axes.plot([at, at + reply.came[0]], middle, color="key", lw=high * 0.42)
            axes.plot([at, at + reply.came[0]], middle, color="key fill", lw=high * 0.42 - 2)
            axes.vlines([at + ms for ms in reply.came], n + 0.12, n + 0.88, color="generated", lw=1.1)
            if names:
                sheet.note(left - 8, top + high * (n + 0.5), names[n], at="right", colour="ink")

    lanes = "; ".join(
        f"{names[n] if names else n + 1}: sent at {reply.sent - start:.0f} ms, "
        f"a pause of {reply.came[0]:.0f}, {pluralize(len(reply.came), 'piece')}, "
        f"the last at {reply.sent - start + reply.came[-1]:.0f}"
        for n, reply in enumerate(replies)
    )
    return Picture(draw, f"{title or 'Replies over time'}. {lanes}.")


def stairs(pauses: Mapping[int, float]) -> Picture:
    """Draw the pause against the place of the first word that is new, with a dot for each place."""
    points = sorted(pauses.items())

    def draw(sheet: Sheet) -> None:
        sheet.heading("The pause, by the first new word")
        sheet.note(18, 46, "ms")
        axes = sheet.add_axes(60, 58, sheet.width - 22, 228, "place of the first new word")
        axes.set(ylim=(0, 1.1 * max(pauses.values())))
        axes.plot(*zip(*points, strict=True), "o", ms=6, mfc="key fill", mec="key")

    listed = ", ".join(f"{place}: {ms:.0f}" for place, ms in points)
    return Picture(draw, f"Milliseconds of the pause, by the place of the first new word. {listed}.")


def compare(found: Mapping[str, str | None], settings: Settings) -> Table:
    """Return a table of the settings of the server on paper, and of what was found."""
    truth = {"prefix cache": "on" if settings.prefix_caching else "off"}
    truth |= {"block": f"{settings.page_size}" if settings.prefix_caching else "none"}
    truth |= {"slots": f"{settings.slots}", "token budget": f"{settings.token_budget}"}
    truth |= {"bandwidth reached": f"{settings.reached:.0%}"}
    rows = [[value, found[name] or "cannot tell"] for name, value in truth.items()]
    return Table(rows, list(truth), ["drawn", "found"])


def check_again_guess(guess: Any) -> Guess:
    """Compare a guess of which change of a cached prompt makes the pause as long as for a new one."""
    why = "A KV entry depends on all tokens before it, so nothing after the first word can be used again."
    return Guess(guess, "first", why, options=["first", "middle", "last"])


def count_slots(replies: Sequence[tuple[float, float]], until: str = "first", strict: bool = True) -> int:
    """Return how many replies began before one of them had ended.

    Args:
        replies: for each of the replies, the times of its first and of its last token.
        until: whether the "first" or the "last" end counts.
        strict: whether a reply that begins at the moment of that end is left out.
    """
    ends = [last for _, last in replies]
    end = min(ends) if until == "first" else max(ends)
    return sum(first < end or (not strict and first == end) for first, _ in replies)


slots_of = Exercise(
    name="slots_of",
    todo="let slots_of return how many replies were in progress at the same time.",
    cases=[
        ([(20, 100), (20, 110), (130, 210), (140, 220)],),
        ([(10, 50), (12, 55), (14, 60), (61, 90)],),
        ([(130, 210), (20, 100), (100, 180)],),
        Case(([(5, 9)],), failure_hint="one reply alone is in progress, too."),
    ],
    right_answer=count_slots,
    wrong_answers=[
        "not the last end but the first one frees a slot: take the smallest of the ends.",
        lambda replies: count_slots(replies, until="last"),
        "a reply that begins when another ends has taken over its slot: it does not count.",
        lambda replies: count_slots(replies, strict=False),
        "the first to begin need not be the first in the list: take the smallest end of all.",
        lambda replies: sum(first < replies[0][1] for first, _ in replies),
    ],
    success="2 of 4 replies begin before 100 ms, when the first one ends.",
)
