"""The bill of notebook 17, and its pictures and exercises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby, takewhile

from helpers.check.exercise import Case, Exercise
from helpers.check.result import NotRightError, clip
from helpers.cost.dated import DATED
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, join_words, text_width
from helpers.plots.batches import FILLS as TEXT_FILLS

Piece = tuple[str, int]  # what a piece of a prompt is, and its number of tokens
Prompt = Sequence[Piece]
TurnBill = dict[str, int]  # number of tokens in a turn by price: "read", "written" and "input"

MARK: Piece = ("cache_control", 0)  # a breakpoint: what comes before it ends a cache entry
BREAKPOINT, MAX_BREAKPOINTS = "|", 4  # in a list of parts; maximum number in a request
MODEL = "Claude Opus 5.5"
DATED_PRICES = DATED["prices"][MODEL]
DOLLARS_PER_MILLION = {
    **{"read": DATED_PRICES.value["cache_read"], "written": DATED_PRICES.value["cache_write_5_minutes"]},
    "input": DATED_PRICES.value["input"],
}
PRICE_SOURCE = f"{MODEL} as of {DATED_PRICES.checked_date}"
FILLS = {"read": "value fill", "written": "query", "input": "generated"}
SMALL_PARTS = ("time", "note", "summary")  # parts that are marked in black, too small for their names
NAMES = {"tool": "tools", "question": "chat", "reply": "chat", "thoughts": "chat", "answer": "chat"}


def bill(
    prompts: Iterable[Prompt], entries: Iterable[tuple[Piece, ...]] = (), shortest: int = 512
) -> list[TurnBill]:
    """Count the tokens of each turn by price: read, written and plain input.

    Args:
        prompts: the prompt of each turn, in pieces. A MARK ends an entry of the provider's cache.
        entries: the entries that are in the cache before the first turn.
        shortest: minimum number of tokens in an entry.
    """
    entries, lines = {*entries}, []
    for prompt in prompts:
        beginning: tuple[Piece, ...] = ()
        size = known = read = last = 0
        for piece in prompt:
            if piece != MARK:
                beginning, size = (*beginning, piece), size + piece[1]
                if beginning in entries:
                    known = size  # the longest entry that this prompt begins with
            elif size >= shortest:
                read, last = known, size
                entries.add(beginning)
        lines.append({"read": read, "written": last - read, "input": size - last})
    return lines


def prompt_dollars(turns: Iterable[TurnBill]) -> float:
    """Return what the prompts of a thousand chats with these turns cost, in dollars."""
    return sum(turn[kind] * price for turn in turns for kind, price in DOLLARS_PER_MILLION.items()) / 1000


def merge_parts(prompt: Prompt) -> list[Piece]:
    """Return (name, number of tokens) of each part of a prompt, in order, with adjacent pieces merged."""
    pieces = [(what.split()[0], n) for what, n in prompt if (what, n) != MARK]
    named = [(NAMES.get(what, what), n) for what, n in pieces]
    return [(name, sum(n for _, n in those)) for name, those in groupby(named, lambda piece: piece[0])]


def stairs(prompts: Mapping[str, Sequence[Prompt]], bills: Mapping[str, Sequence[TurnBill]]) -> Picture:
    """Draw how a provider bills chats. Each turn is a strip whose length shows its tokens.

    Args:
        prompts: the prompts of each client's chat, by the client's name.
        bills: the bill of each client's chat, as returned by `bill`.
    """

    def draw(sheet: Sheet) -> None:
        turns = [turn for chat in bills.values() for turn in chat]
        y = draw_legend(sheet, [kind for kind in FILLS if any(turn[kind] for turn in turns)]) + 14
        longest = max(sum(n for _, n in prompt) for chat in prompts.values() for prompt in chat)
        unit = (sheet.width - 36) / longest
        for name, chat in prompts.items():
            sheet.text(18, y, name, bold=True)
            cost = f"{prompt_dollars(bills[name]):,.0f} dollars"
            sheet.text(sheet.width - 18, y, cost, at="right", bold=True)
            y += 14
            for prompt, turn in zip(chat, bills[name], strict=True):
                x = 18.0
                for kind, fill in FILLS.items():
                    sheet.box(x, y, unit * turn[kind], 4, fill=fill, radius=0)
                    x += unit * turn[kind]
                x = 18.0
                for part, n in merge_parts(prompt):
                    if part in SMALL_PARTS:
                        sheet.box(x, y + 2, max(2, unit * n), 2, fill="ink", radius=0)
                    x += unit * n
                y += 5
            for at, piece in enumerate(chat[-1]):
                if piece == MARK:
                    x = 18 + unit * sum(n for _, n in chat[-1][:at])
                    sheet.line((x, y), (x, y + 8), width=2)
            x = 18.0
            for part, n in merge_parts(chat[-1]):
                if part not in SMALL_PARTS and text_width(part, SMALL) + 4 < unit * n:
                    sheet.note(x + unit * n / 2, y + 8, part, at="center")
                x += unit * n
            y += 31

    lines = []
    for name, turns in bills.items():
        sums = {kind: sum(turn[kind] for turn in turns) for kind in FILLS}
        split = ", ".join(f"{n:,} {kind}" for kind, n in sums.items())
        parts = ", ".join(f"{part} {n:,}" for part, n in merge_parts(prompts[name][-1]))
        total = f"of {sum(sums.values()):,} tokens {split}"
        lines.append(f"{name}, {prompt_dollars(turns):,.0f} dollars: {total}; last turn {parts}.")
    return Picture(draw, " ".join([*lines, f"Prices of {PRICE_SOURCE}."]))


def draw_legend(sheet: Sheet, kinds: Sequence[str]) -> float:
    """Draw the legend of `stairs` with these prices. Return the y position below it, in px."""
    keys = [(FILLS[kind], f"{kind}, ${DOLLARS_PER_MILLION[kind]:.2f}/M") for kind in kinds]
    x, y = 18.0, 16.0
    for fill, text in [*keys, ("ink", ", ".join(SMALL_PARTS)), ("|", "breakpoint"), ("", PRICE_SOURCE)]:
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


def shared_pages_picture(
    texts: Mapping[str, str], states: Mapping[str, Mapping[str, Sequence[int]]], n_pages: int, page_size: int
) -> Picture:
    """Draw what is in the pages of a pool, and whose tables name them, at several times.

    Args:
        texts: the texts by name, one letter per token.
        states: by a caption, the table of each text that is running at that time.
        n_pages: number of pages in the pool.
        page_size: number of tokens in a page.
    """
    colours = {name: TEXT_FILLS[n % len(TEXT_FILLS)] for n, name in enumerate(texts)}
    contents: dict[int, str] = {}
    pools = []  # by state: the letters in each page, and the names of the texts whose tables name it
    for tables in states.values():
        for name, table in tables.items():
            for n, page in enumerate(table):
                contents[page] = texts[name][n * page_size : (n + 1) * page_size]
        users = [[name for name in tables if page in tables[name]] for page in range(n_pages)]
        pools.append([(contents.get(page, ""), users[page]) for page in range(n_pages)])

    def draw(sheet: Sheet) -> None:
        y, wide = 16.0, (sheet.width - 28) / n_pages
        cell = (wide - 10) / page_size
        for caption, pool in zip(states, pools, strict=True):
            sheet.text(18, y, caption, bold=True)
            for page, (letters, names) in enumerate(pool):
                x, top = 18 + wide * page, y + 40
                sheet.note(x, top - 14, str(page), colour="ink" if names else "soft", bold=bool(names))
                colour = colours[names[0]] if names else "line"
                for n in range(page_size):
                    letter = letters[n : n + 1]
                    fill = f"{colour} fill" if letter and names else "none"
                    sheet.box(x + cell * n, top, cell - 2, 22, fill=fill, edge=colour, radius=2)
                    ink = "ink" if names else "soft"
                    sheet.note(x + cell * (n + 0.5) - 1, top + 11, letter, at="center", colour=ink)
                for n, name in enumerate(names):
                    sheet.square(x + 4 + 23 * n, top + 36, 8, colours[name])
                    sheet.note(x + 10 + 23 * n, top + 36, name, colour="ink", bold=True)
            y += 112

    alt = []
    for caption, pool in zip(states, pools, strict=True):
        pages = [
            f"page {page} {letters or 'empty'}{', of ' + join_words(names) if names else ', free'}"
            for page, (letters, names) in enumerate(pool)
        ]
        alt.append(f"{caption}: {'; '.join(pages)}.")
    return Picture(draw, " ".join(alt))


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
        "the tokens agree and those before them do not, so KV entries differ: stop at the first difference.",
        partial(count_shared_pages, stop_at_difference=False),
        "a hash alone, or a sum: 'ab' and 'ba' may have the same. Compare the tokens.",
        lambda old, new, size: count_shared_pages(
            page_token_sums(old, size), [*page_token_sums(new[:-1], size), -1], 1
        ),
    ],
    success="3 pages of 2 for abcdefgh and abcdefxy; of two equal texts a last page that is full runs again.",
)


PARTS_TO_ORDER = ("tools", "system", "time", "chat", "question")


def order_cost(order: Sequence[str]) -> dict[str, float]:
    """Return what it costs if a client sends the parts in PARTS_TO_ORDER in a certain order.

    Other chats with the same client came before. So the beginnings that consist of tools and system text
    alone, and end at a breakpoint, are in the cache.

    Args:
        order: names of the parts, and breakpoints, as a list or as text separated by spaces.

    Returns:
        A dict that maps verbs to values: the cost of a thousand chats in dollars, and the number of parts
        that come after the time.

    Raises:
        NotRightError: a part is missing, unknown or repeated, there are too many breakpoints, or the parts
            are in an order in which no request is sent.
    """
    order = order.split() if isinstance(order, str) else [*order]
    names = [part for part in order if part != BREAKPOINT]
    if sorted(names) != sorted(PARTS_TO_ORDER):
        raise NotRightError(
            f"order holds {clip(repr(order))}; expected each of {', '.join(PARTS_TO_ORDER)} once."
        )
    if len(order) - len(names) > MAX_BREAKPOINTS:
        raise NotRightError(
            f"order has {len(order) - len(names)} breakpoints; expected {MAX_BREAKPOINTS} at most."
        )
    fixed = [part for part in PARTS_TO_ORDER if part != "time"]
    if names[0] != fixed[0] or [part for part in names if part != "time"] != fixed:
        raise NotRightError(
            f"a request has the order {', '.join(fixed)}; expected that, and the time after tools."
        )
    prompts = list[Prompt]()
    earlier: list[Piece] = []
    for turn in range(10):
        question = (f"question {turn}", 300)
        pieces = {BREAKPOINT: [MARK], "tools": [("tools", 4000)], "system": [("system", 2000)]}
        pieces |= {"time": [(f"time {turn}", 8)], "chat": earlier, "question": [question]}
        prompts.append([piece for part in order for piece in pieces[part]])
        earlier = [*earlier, question, (f"reply {turn}", 250)]
    shared = [*takewhile(lambda piece: piece[0] in ("tools", "system", MARK[0]), prompts[0])]
    stored = [
        tuple(one for one in shared[:end] if one != MARK) for end, piece in enumerate(shared) if piece == MARK
    ]
    cost = round(prompt_dollars(bill(prompts, stored)), 2)
    return {"costs, in dollars,": cost, "has parts after the time:": len(names) - 1 - names.index("time")}


order = Exercise(
    name="order",
    todo="write the five parts in order, with breakpoints among them.",
    cases=[Case((), "the order")],
    right_answer=["tools", "system", "|", "chat", "question", "|", "time"],
    run_case=order_cost,
    wrong_answers=[
        "the time is another text in each turn: nothing that comes after it is found.",
        ["tools", "|", "time", "system", "|", "chat", "question", "|"],
        ["tools", "system", "|", "time", "chat", "question", "|"],
        "an entry that ends with the time is never found again: end one before it.",
        ["tools", "system", "|", "chat", "question", "time", "|"],
        ["tools", "system", "chat", "question", "time", "|"],
        "after the last breakpoint all is plain input: end an entry with the new question.",
        ["tools", "system", "|", "chat", "question", "time"],
        ["tools", "system", "|", "chat", "|", "question", "time"],
        "another chat begins with the same tools and system text: end an entry there, too.",
        ["tools", "system", "chat", "question", "|", "time"],
    ],
    success="what never changes comes first, and what changes each time comes after the last breakpoint.",
)
