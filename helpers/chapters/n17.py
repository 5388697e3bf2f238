"""The bill for a chat, the explorer and the exercises of notebook 17, pages."""

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
]  # for each piece of text: (key that identifies its content, number of tokens)

PARTS = ("tools", "system", "clock", "summary", "chat", "question")
BREAKPOINT, TAG, MAX_BREAKPOINTS = (
    "|",
    "breakpoint",
    4,
)  # a breakpoint in a list of parts; its name on a tag; maximum number in a request
N_TOOLS, CLOCK_TOKENS, SUMMARY_TOKENS = 5, 8, 200  # number of tools; tokens in the clock and in the summary
ENTRY_LIFETIME_SECONDS = 300  # how long a provider keeps a cache entry after its last use
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
    """A client of a provider. Its fields say how it composes the prompt for each turn of a chat.

    Raises:
        ValueError: `parts` contains an unknown name, or more than `MAX_BREAKPOINTS` breakpoints.
    """

    # Names in PARTS and breakpoints ("|"), in the order in which they appear in the prompt.
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
        """Compose the prompt for one turn of a chat.

        Args:
            service: the service. It defines how many tokens each part of the prompt has.
            chat, turn: indices of the chat and of the turn in it, from 0.

        Returns:
            The pieces of the prompt, and for each breakpoint the number of pieces before it.
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
    """Return the two pieces of a reply: the thoughts and the visible reply.

    The thoughts have two fifths of the reply's tokens.
    """
    thoughts = 2 * service.reply_tokens // 5
    return [(("thoughts", chat, turn), thoughts), (("reply", chat, turn), service.reply_tokens - thoughts)]


class BilledTurn(NamedTuple):
    """The prompt of one turn, and how many of its tokens a provider bills at each of three prices.

    Each token is billed as read from the provider's cache, as written to this cache, or as plain input.
    """

    parts: list[tuple[str, int]]  # (name, number of tokens) of each part, in order
    breakpoint_positions: list[int]  # number of tokens before each breakpoint
    n_cached: int  # number of tokens that an engine finds in its pages
    n_read: int  # number of tokens read from the provider's cache
    n_written: int  # number of tokens written to the provider's cache
    n_plain: int  # number of tokens billed as plain input

    @property
    def n_prompt(self) -> int:
        """The number of tokens in the prompt."""
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
    """Return how each turn of a chat is billed, if the same client has had another chat before.

    An engine finds the full pages of earlier prompts and replies, but it always processes the last token of a
    prompt. A provider works with breakpoints. The longest prefix that ended at a breakpoint of an earlier
    prompt is read from its cache. The tokens between this prefix and the last breakpoint are written to the
    cache. The tokens after the last breakpoint are plain input. No other requests evict cache entries.

    The provider keeps an entry for ENTRY_LIFETIME_SECONDS after its last use. If `service.pause_seconds` is
    longer, entries that only one chat uses expire between its turns. Entries that other chats also use
    remain.

    Args:
        client: the client, which composes the prompts.
        service: the service. It defines the number of turns, the pause between turns, and the number of
            tokens in each part of the prompt.
        min_entry_tokens: minimum number of tokens in an entry of the provider's cache.
        page_size: number of KV entries in a page of the engine.
    """
    texts, entries, turns = list[PromptPieces](), list[PromptPieces](), list[BilledTurn]()
    for chat in range(2):
        for n in range(service.turns):
            text, at = client.prompt(service, chat, n)
            total = count_tokens(text)
            # The newest token of an earlier text has no KV entry.
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
    """Return one pair per part of a prompt, in order: (name, number of tokens).

    Thoughts, replies and questions get the name "chat". Adjacent parts with the same name are merged.
    """
    names = {"thoughts": "chat", "reply": "chat", "question": "chat"}
    pieces = [(names.get(what[0], what[0]), n) for what, n in text]  # type: ignore[index]
    return [(name, sum(n for _, n in those)) for name, those in groupby(pieces, lambda one: one[0])]


def dollars_per_thousand_chats(turns: Sequence[BilledTurn]) -> float:
    """Return what the prompts in a thousand chats with these turns cost, in dollars."""
    return (
        sum(getattr(one, f"n_{kind}") * price for one in turns for kind, price in DOLLARS_PER_MILLION.items())
        / 1000
    )


def dollars_without_breakpoints(turns: Sequence[BilledTurn]) -> float:
    """Return what the prompts in a thousand such chats would cost without breakpoints, in dollars."""
    return sum(one.n_prompt for one in turns) * DOLLARS_PER_MILLION["plain"] / 1000


def count_processed_tokens(turns: Sequence[BilledTurn]) -> int:
    """Return how many tokens in the turns' prompts an engine must process, because no page has them."""
    return sum(one.n_prompt - one.n_cached for one in turns)


@dataclass(frozen=True)
class BilledChats:
    """A drawing of how a provider bills chats. Each turn is a strip whose length shows its tokens."""

    chats: Mapping[str, Sequence[BilledTurn]]  # the turns of each client's chat, by the client's name
    strip_height: float = 4  # height of a strip in px
    note: str = ""  # text below the static form of the picture

    def draw(self, sheet: Sheet) -> None:
        """Draw the turns of each client's chat on a sheet."""
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
        """Draw the legend. Return the y position below it, in px."""
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
        """Return the text alternative of the drawing."""
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
        """Return the drawing as HTML."""
        return Picture(self.draw, self.in_words()).html()


def billed_chats(clients: Mapping[str, Client], service: Service) -> Picture:
    """Draw how a provider bills each turn of each client's chat, and what the chats cost.

    Args:
        clients: the clients, by name.
        service: the service. It defines the number of turns and the number of tokens in each part of a
            prompt.
    """
    drawn = BilledChats({name: bill_chat(client, service) for name, client in clients.items()})
    return Picture(drawn.draw, drawn.in_words())


class ClientBillExplorer(Explorer):
    """An explorer of one client's bill, in which the reader arranges the parts of the prompt.

    Other controls set the minimum number of tokens in a cache entry, whether the client shuffles the tools,
    and whether it leaves out the thoughts of earlier replies.
    """

    title = "Explorer: what a chat costs, by the order of its parts"

    def __init__(self, service: Service) -> None:
        self.service = service

    def controls(self) -> dict[str, Any]:
        """Return the controls by the name of their setting.

        The reader drags the parts of the prompt as tags. In ipywidgets 7, which has no tags, the reader
        writes them in a text field.
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
        """Return the billed turns of a chat with the current settings.

        Args:
            parts: names of parts, and breakpoints, as a list or as text separated by spaces.
            shortest: as `min_entry_tokens` in `bill_chat`.
            shuffled, dropped: as `shuffle_tools` and `drop_thoughts` in `Client`.

        Raises:
            ValueError: as in `Client`.
        """
        parts = parts.split() if isinstance(parts, str) else parts
        marked = tuple(BREAKPOINT if part == TAG else part for part in parts)
        return bill_chat(Client(marked, shuffled, dropped), self.service, shortest)

    def sentence_html(self, **settings: Any) -> str:
        """Return, as HTML, the cost of the chats and the number of tokens that an engine would process.

        If the settings are invalid, return the error's message.
        """
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
        """Return the drawing of the turns. If the settings are invalid, the default client is drawn."""
        note = "Drag parts, take them out, or type them: " + ", ".join([*PARTS, TAG]) + "."
        try:
            turns = self.turns(**settings)
        except ValueError:
            turns = bill_chat(Client(), self.service)
        return BilledChats({"your client": turns}, strip_height=12, note=note)


def count_shared_pages(
    old: Sequence[int], new: Sequence[int], page_size: int, stop_at_difference: bool = True
) -> int:
    """Return how many pages a new text can share with an old text.

    Only full pages can be shared. At least one token of the new text is processed, so a page that contains
    its last token is not shared.

    Args:
        old, new: token ids of the old and of the new text.
        page_size: number of tokens in a page.
        stop_at_difference: whether to stop counting at the first page that differs. If not, all equal pages
            count, which is wrong.
    """
    starts = range(0, min(len(old), len(new) - 1) - page_size + 1, page_size)
    alike = [old[at : at + page_size] == new[at : at + page_size] for at in starts]
    return [*alike, False].index(False) if stop_at_difference else sum(alike)


def page_token_sums(text: Sequence[int], page_size: int) -> list[int]:
    """Return, for each full page of a text, the sum of its token ids."""
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
    """Return what it costs if a client sends the parts in PARTS_TO_ORDER in a certain order.

    Args:
        order: names of the parts, and breakpoints, as a list or as text separated by spaces.

    Returns:
        A dict that maps verbs to values: the cost of a thousand chats in dollars, and the number of tokens
        that an engine processes.

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
