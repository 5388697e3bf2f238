"""Notebook 17, pages: a chat as a provider bills it, and the exercises."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, takewhile
from typing import Any, NamedTuple

import ipywidgets as widgets  # type: ignore[import-untyped]

from helpers.check.exercise import Case, Exercise
from helpers.check.result import NotRightError, clip
from helpers.cost.dated import DATED
from helpers.cost.service import Service
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.explorer import Explorer, labelled_widget, number_slider
from helpers.drawing.words import SMALL, text_width

PromptPieces = list[
    tuple[Hashable, int]
]  # pieces of text, each a key that identifies its content, and its tokens

PARTS = ("tools", "system", "clock", "summary", "chat", "question")
BREAKPOINT, TAG, MAX_BREAKPOINTS = (
    "|",
    "breakpoint",
    4,
)  # a breakpoint in a list, on a tag; maximum in a request
N_TOOLS, CLOCK_TOKENS, SUMMARY_TOKENS = 5, 8, 200  # number of tools; tokens of the clock and of the summary
ENTRY_LIFETIME_SECONDS = 300  # seconds that an entry of the provider's cache is kept after its last use
MODEL = "Claude Opus 5.5"
DATED_PRICES = DATED["prices"][MODEL]
DOLLARS_PER_MILLION = {  # dollars per million tokens
    **{"read": DATED_PRICES.value["cache_read"], "written": DATED_PRICES.value["cache_write_5_minutes"]},
    "plain": DATED_PRICES.value["input"],
}
PRICE_SOURCE = f"{MODEL} as of {DATED_PRICES.checked_date}"
FILLS = {"read": "value fill", "written": "query", "plain": "generated"}
CHANGING_PARTS = ("clock", "summary")  # parts whose text changes in every turn


@dataclass(frozen=True)
class Client:
    """How a client composes the prompt of each turn of a chat.

    Raises:
        ValueError: `parts` has an unknown name, or over `MAX_BREAKPOINTS` breakpoints.
    """

    # Names in PARTS and breakpoints ("|"), in the order of the prompt.
    parts: Sequence[str] = ("tools", "|", "system", "|", "chat", "question", "|")
    shuffle_tools: bool = False  # whether the tools are in a new random order in each turn
    drop_thoughts: bool = False  # whether the thoughts of earlier replies are left out

    def __post_init__(self) -> None:
        unknown, n = {*self.parts} - {*PARTS, BREAKPOINT}, [*self.parts].count(BREAKPOINT)
        if unknown or n > MAX_BREAKPOINTS:
            got = ", ".join(sorted(unknown)) or f"{n} breakpoints"
            wanted = f"{', '.join(PARTS)}, and at most {MAX_BREAKPOINTS} breakpoints {BREAKPOINT}"
            raise ValueError(f"got {got}; expected {wanted}")

    def prompt(self, service: Service, chat: int, turn: int) -> tuple[PromptPieces, list[int]]:
        """Compose the prompt of one turn.

        Args:
            service: gives the number of tokens of each part.
            chat, turn: number of the chat and of the turn, from 0.

        Returns:
            The prompt, and the number of its pieces before each breakpoint.
        """
        order = [*range(N_TOOLS)]
        if self.shuffle_tools:
            random.Random(100 * chat + turn).shuffle(order)
        each = service.tool_tokens // N_TOOLS
        earlier = PromptPieces()
        for n in range(turn):
            earlier += [
                (("question", chat, n), service.message_tokens),
                *reply_pieces(service, chat, n)[self.drop_thoughts :],
            ]
        pieces: dict[str, PromptPieces] = {
            "tools": [
                (("tools", n), each if n else service.tool_tokens - each * (N_TOOLS - 1)) for n in order
            ],
            "system": [(("system",), service.system_tokens)],
            "clock": [(("clock", chat, turn), CLOCK_TOKENS)],
            "summary": [(("summary", chat, turn), SUMMARY_TOKENS)],
            "chat": earlier,
            "question": [(("question", chat, turn), service.message_tokens)],
        }
        text, marks = PromptPieces(), list[int]()
        for part in self.parts:
            if part == BREAKPOINT:
                marks.append(len(text))
            else:
                text += pieces[part]
        return text, marks


def reply_pieces(service: Service, chat: int, turn: int) -> PromptPieces:
    """Return a reply as two pieces: the thoughts, with two fifths of its tokens, and the visible reply."""
    thoughts = 2 * service.reply_tokens // 5
    return [(("thoughts", chat, turn), thoughts), (("reply", chat, turn), service.reply_tokens - thoughts)]


class BilledTurn(NamedTuple):
    """The prompt of one turn, in tokens, each of which a provider bills as read, written or plain."""

    parts: list[tuple[str, int]]  # name and tokens of each part of the prompt, in order
    breakpoint_positions: list[int]  # tokens before each breakpoint
    n_cached: int  # tokens found in the pages of an engine
    n_read: int  # tokens read from the provider's cache
    n_written: int  # tokens written to the provider's cache
    n_plain: int  # tokens billed as plain input

    @property
    def n_prompt(self) -> int:
        """All tokens of the prompt."""
        return self.n_read + self.n_written + self.n_plain


def count_tokens(text: PromptPieces) -> int:
    """Return the number of tokens in a text."""
    return sum(n for _, n in text)


def common_prefix_tokens(a: PromptPieces, b: PromptPieces) -> int:
    """Return the number of tokens in the longest common prefix of two texts."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return sum(n for (_, n), _ in alike)


def bill_chat(
    client: Client, service: Service, min_entry_tokens: int = 512, page_size: int = 16
) -> list[BilledTurn]:
    """Return the billed turns of a chat that follows an earlier chat of the same client.

    An engine finds full pages of earlier texts, including replies, but always processes the last token of a
    prompt. A provider reads the longest prefix that ended at a breakpoint of an earlier request; the rest up
    to the last breakpoint is written; and tokens after that are plain input. No other requests evict entries.

    The provider keeps an entry for KEPT seconds after its last use. If `service.pause_seconds` is longer,
    the entries of a single chat expire between turns, and those that other chats also use remain.

    Args:
        client: how the prompts are composed.
        service: gives the number of turns, the pause, and the tokens of each part.
        min_entry_tokens: minimum number of tokens in an entry of the provider's cache.
        page_size: rows in a page of the engine.
    """
    texts, entries, turns = list[PromptPieces](), list[PromptPieces](), list[BilledTurn]()
    for chat in range(2):
        for n in range(service.turns):
            text, at = client.prompt(service, chat, n)
            total = count_tokens(text)
            # The newest token of an earlier text has no row.
            found = (min(common_prefix_tokens(text, old), count_tokens(old) - 1, total - 1) for old in texts)
            cached = page_size * (max(found, default=0) // page_size)
            marks = [count_tokens(text[:end]) for end in at]
            last = max((mark for mark in marks if mark >= min_entry_tokens), default=0)
            read = max(
                (
                    count_tokens(one)
                    for one in entries
                    if common_prefix_tokens(text, one) == count_tokens(one)
                ),
                default=0,
            )
            if (
                not chat or service.pause_seconds <= ENTRY_LIFETIME_SECONDS
            ):  # the first chat represents all other chats
                entries += [
                    text[:end] for end, mark in zip(at, marks, strict=True) if mark >= min_entry_tokens
                ]
            texts.append([*text, *reply_pieces(service, chat, n)])
            turns.append(
                BilledTurn(merge_parts_by_name(text), marks, cached, read, last - read, total - last)
            )
    return turns[service.turns :]


def merge_parts_by_name(text: PromptPieces) -> list[tuple[str, int]]:
    """Return the name and tokens of each part of a prompt, in order.

    Thoughts, replies and questions are all named "chat", and adjacent parts with the same name are merged.
    """
    names = {"thoughts": "chat", "reply": "chat", "question": "chat"}
    pieces = [(names.get(what[0], what[0]), n) for what, n in text]  # type: ignore[index]
    return [(name, sum(n for _, n in those)) for name, those in groupby(pieces, lambda one: one[0])]


def dollars_per_thousand_chats(turns: Sequence[BilledTurn]) -> float:
    """Return the cost of the prompts of a thousand chats with these turns, in dollars."""
    return (
        sum(getattr(one, f"n_{kind}") * price for one in turns for kind, price in DOLLARS_PER_MILLION.items())
        / 1000
    )


def dollars_without_breakpoints(turns: Sequence[BilledTurn]) -> float:
    """Return the cost of the prompts of a thousand such chats without any breakpoint, in dollars."""
    return sum(one.n_prompt for one in turns) * DOLLARS_PER_MILLION["plain"] / 1000


def count_processed_tokens(turns: Sequence[BilledTurn]) -> int:
    """Return how many tokens of the turns' prompts an engine does not find in its pages."""
    return sum(one.n_prompt - one.n_cached for one in turns)


@dataclass(frozen=True)
class BilledChats:
    """A drawing of chats as a provider bills them, with a strip for each turn, drawn to scale."""

    chats: Mapping[str, Sequence[BilledTurn]]  # from the name of each client to the turns of its chat
    strip_height: float = 4  # height of a strip in px
    note: str = ""  # text below the static form

    def draw(self, sheet: Sheet) -> None:
        """Draw the chats on a sheet."""
        y = self._legend(sheet) + 14
        unit = (sheet.width - 36) / max(one.n_prompt for turns in self.chats.values() for one in turns)
        for name, turns in self.chats.items():
            sheet.text(18, y, name, bold=True)
            sheet.text(
                sheet.width - 18,
                y,
                f"{dollars_per_thousand_chats(turns):,.0f} dollars",
                at="right",
                bold=True,
            )
            y += 14
            for one in turns:
                x = 18.0
                for kind, fill in FILLS.items():
                    wide = unit * getattr(one, f"n_{kind}")
                    sheet.box(x, y, wide, self.strip_height, fill=fill, radius=0)
                    x += wide
                x = 18.0
                for part, n in one.parts:
                    if part in CHANGING_PARTS:
                        sheet.box(x, y, max(2, unit * n), self.strip_height, fill="ink", radius=0)
                    x += unit * n
                y += self.strip_height + 1
            for mark in turns[-1].breakpoint_positions:
                sheet.line((18 + unit * mark, y), (18 + unit * mark, y + 8), width=2)
            x = 18.0
            for part, n in turns[-1].parts:
                if part not in CHANGING_PARTS and text_width(part, SMALL) + 4 < unit * n:
                    sheet.note(x + unit * n / 2, y + 8, part, at="center")
                x += unit * n
            y += 31

    def _legend(self, sheet: Sheet) -> float:
        """Draw the legend, and return the y position below it."""
        words = {"read": "read again", "written": "written", "plain": "plain input"}
        turns = [one for chat in self.chats.values() for one in chat]
        kinds = {
            kind: fill for kind, fill in FILLS.items() if any(getattr(one, f"n_{kind}") for one in turns)
        }
        price = "{}, ${:.2f}/M".format
        keys = [(fill, price(words[kind], DOLLARS_PER_MILLION[kind])) for kind, fill in kinds.items()]
        x, y = 18.0, 16.0
        entries = [*keys, ("ink", "clock, summary"), ("|", "breakpoint"), ("", PRICE_SOURCE)]
        for fill, text in entries:
            wide = (26 if fill else 6) + text_width(text, SMALL)
            if x + wide > sheet.width:
                x, y = 18.0, y + 22
            if fill == "|":
                sheet.line((x + 7, y - 6), (x + 7, y + 6), width=2)
            elif fill:
                sheet.box(x, y - 7, 14, 14, fill=fill, radius=0)
            sheet.note(x + (20 if fill else 0), y, text)
            x += wide + 16
        return y + 18

    def in_words(self) -> str:
        """Return the drawing as text."""
        lines = []
        for name, turns in self.chats.items():
            sums = {kind: sum(getattr(one, f"n_{kind}") for one in turns) for kind in FILLS}
            split = ", ".join(f"{n:,} {kind}" for kind, n in sums.items())
            parts = ", ".join(f"{part} {n:,}" for part, n in turns[-1].parts)
            total = f"of {sum(sums.values()):,} tokens {split}"
            lines.append(
                f"{name}, {dollars_per_thousand_chats(turns):,.0f} dollars: {total}; last turn {parts}."
            )
        return " ".join([*lines, f"Prices of {PRICE_SOURCE}."])

    def html(self) -> str:
        """Return the drawing as the HTML of a picture."""
        return Picture(self.draw, self.in_words()).html()


def billed_chats(clients: Mapping[str, Client], service: Service) -> Picture:
    """Draw how a provider bills each turn of each client's chat, and what the chats cost.

    Args:
        clients: the clients, by name.
        service: gives the number of turns and the tokens of each part.
    """
    drawn = BilledChats({name: bill_chat(client, service) for name, client in clients.items()})
    return Picture(drawn.draw, drawn.in_words())


class ClientBillExplorer(Explorer):
    """An explorer of one client's bill, in which the reader arranges the parts of the prompt.

    The reader also sets the minimum size of a cache entry, and whether the client shuffles the tools or
    leaves out earlier thoughts.
    """

    title = "Explorer: what a chat costs, by the order of its parts"

    def __init__(self, service: Service) -> None:
        self.service = service

    def controls(self) -> dict[str, Any]:
        """Return the knobs.

        The parts of the prompt are tags to drag, or a text field in ipywidgets 7, which has no tags.
        """
        if hasattr(widgets, "TagsInput"):
            first = [TAG if part == BREAKPOINT else part for part in Client.parts]
            order: Any = widgets.TagsInput(value=first, allowed_tags=[*PARTS, TAG], allow_duplicates=True)
        else:
            order = widgets.Text(value=" ".join(Client.parts), continuous_update=False)
        order.description = "the prompt"
        tools, thoughts = [("same order", False), ("shuffled", True)], [("kept", False), ("left out", True)]
        return {
            "parts": order,
            "shortest": number_slider("shortest entry", (512, 1024, 4096), 512),
            "shuffled": labelled_widget("SelectionSlider", "tools", options=tools, value=False),
            "dropped": labelled_widget("SelectionSlider", "thoughts", options=thoughts, value=False),
        }

    def turns(
        self, parts: Sequence[str] | str, shortest: int, shuffled: bool, dropped: bool
    ) -> list[BilledTurn]:
        """Return the turns of a chat with these settings.

        Args:
            parts: names of parts and breakpoints, as a list or separated by spaces.
            shortest: as in `bill_chat`.
            shuffled, dropped: as in `Client`.

        Raises:
            ValueError: as in `Client`.
        """
        parts = parts.split() if isinstance(parts, str) else parts
        marked = tuple(BREAKPOINT if part == TAG else part for part in parts)
        return bill_chat(Client(marked, shuffled, dropped), self.service, shortest)

    def sentence_html(self, **settings: Any) -> str:
        """Return a sentence with the cost, and with the tokens that an engine would process, or an error."""
        try:
            turns = self.turns(**settings)
        except ValueError as error:
            return f"{error}."
        total, n_processed = sum(one.n_prompt for one in turns), count_processed_tokens(turns)
        cost, without = dollars_per_thousand_chats(turns), dollars_without_breakpoints(turns)
        return (
            f"A thousand such chats cost <b>{cost:,.0f} dollars</b>, without a breakpoint {without:,.0f}. "
            f"An engine of your own processes {n_processed:,} of {total:,}."
        )

    def picture(self, **settings: Any) -> Any:
        """Return the drawing of the turns; if the settings are invalid, that of the default client."""
        note = "Drag parts, take them out, or type them: " + ", ".join([*PARTS, TAG]) + "."
        try:
            turns = self.turns(**settings)
        except ValueError:
            turns = bill_chat(Client(), self.service)
        return BilledChats({"your client": turns}, strip_height=12, note=note)


def count_shared_pages(
    old: Sequence[int], new: Sequence[int], page_size: int, stop_at_difference: bool = True
) -> int:
    """Return how many pages of a new text can be shared with an old text.

    Only full pages count, and at least one token of the new text is left to process.

    Args:
        old, new: the tokens of each text.
        page_size: tokens in a page.
        stop_at_difference: stop at the first page that differs; otherwise count every equal page.
    """
    starts = range(0, min(len(old), len(new) - 1) - page_size + 1, page_size)
    alike = [old[at : at + page_size] == new[at : at + page_size] for at in starts]
    return [*alike, False].index(False) if stop_at_difference else sum(alike)


def page_token_sums(text: Sequence[int], page_size: int) -> list[int]:
    """Return the sum of the tokens in each full page of a text, where a page has `page_size` tokens."""
    return [sum(text[end - page_size : end]) for end in range(page_size, len(text) + 1, page_size)]


shared_pages = Exercise(
    name="shared_pages",
    todo="let shared_pages return how many pages can be shared.",
    cases=[
        Case(([*map(ord, a)], [*map(ord, b)], size), f"shared_pages({a!r}, {b!r}, {size}), a letter a token")
        for a, b, size in [
            *[("abcdefgh", "abcdefxy", 2), ("abcdefg", "abcdefg", 3), ("abcdef", "abcdef", 3)],
            *[("abcdef", "abcxef", 2), ("abcdefgh", "abxdefghi", 2), ("abcde", "abcdefghi", 4)],
            *[("abcd", "bacdx", 2), ("xbcd", "abcd", 2), ("abcdef", "axcdefg", 3)],
            ("abcdef", "abcdefgh", 3),
        ]
    ],
    right_answer=count_shared_pages,
    wrong_answers=[
        "a full hit leaves nothing to run: the last token must, for its logits.",
        lambda old, new, size: count_shared_pages(old, [*new, -1], size),
        "a page is shared in which the texts differ: compare every token of it.",
        lambda old, new, size: count_shared_pages(old[::size], [*new[:-1:size], -1], 1),
        lambda old, new, size: -(-count_shared_pages(old, new, 1) // size),
        "the tokens agree and those before them do not, so the rows differ: stop at the first that does.",
        partial(count_shared_pages, stop_at_difference=False),
        "a hash alone, or a sum: 'ab' and 'ba' may have the same. Compare the tokens.",
        lambda old, new, size: count_shared_pages(
            page_token_sums(old, size), [*page_token_sums(new[:-1], size), -1], 1
        ),
    ],
    success="3 pages of 2 for abcdefgh and abcdefxy; of two equal texts a last page that is full runs again.",
)


PARTS_TO_ORDER = ("tools", "system", "clock", "chat", "question")


def order_cost(order: Sequence[str]) -> dict[str, float]:
    """Return the cost and the processed tokens of a client that sends the parts of SENT in this order.

    Args:
        order: names of the parts and breakpoints, as a list or separated by spaces.

    Returns:
        From a verb to its value: the dollars for a thousand chats, and the tokens that an engine processes.

    Raises:
        NotRightError: a part is missing, unknown or repeated, or there are too many breakpoints.
    """
    order = order.split() if isinstance(order, str) else order
    parts = sorted(part for part in order if part != BREAKPOINT)
    if parts != sorted(PARTS_TO_ORDER):
        raise NotRightError(
            f"order holds {clip(repr([*order]))}; expected each of {', '.join(PARTS_TO_ORDER)} once."
        )
    try:
        client = Client(tuple(order))
    except ValueError as error:
        raise NotRightError(f"{error}.") from None
    turns = bill_chat(client, Service())
    return {
        "costs dollars": round(dollars_per_thousand_chats(turns), 2),
        "lets an engine process tokens": count_processed_tokens(turns),
    }


order = Exercise(
    name="order",
    todo="write the five parts in order, with breakpoints among them.",
    cases=[Case((), "the order")],
    right_answer=["tools", "system", "|", "chat", "question", "|", "clock"],
    run_case=order_cost,
    wrong_answers=[
        "the clock is another text in each turn: nothing behind it is found.",
        ["tools", "|", "clock", "system", "|", "chat", "question", "|"],
        ["clock", "tools", "system", "|", "chat", "question", "|"],
        ["tools", "system", "|", "clock", "chat", "question", "|"],
        "an entry that ends with the clock is never found again: end one in front of it.",
        ["tools", "system", "|", "chat", "question", "clock", "|"],
        ["tools", "system", "chat", "question", "clock", "|"],
        "behind the last breakpoint all is plain input: end an entry with the new question.",
        ["tools", "system", "|", "chat", "question", "clock"],
        ["tools", "system", "|", "chat", "|", "question", "clock"],
        "another chat begins with tools and system alone: end an entry there, too.",
        ["tools", "system", "chat", "question", "|", "clock"],
    ],
    success="what never changes stands first, what changes each time stands behind the last breakpoint.",
)
