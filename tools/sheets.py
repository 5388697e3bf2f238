"""Two worksheets for a class, each on one sheet of paper, blank and with answers. site.py writes them.

Their texts are in `tools/data/sheets/`. In them, {…} is a given number, […] is a blank to write in, and <<…>>
is a table or a drawing. All numbers and answers are computed here, with the functions of `helpers` that the
notebooks use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from nbconvert.filters import markdown2html

from helpers.cost.layers import GIB, cache_nbytes, nbytes_of, users_that_fit
from helpers.cost.models import CARDS, MODELS
from helpers.serve import scheduler, simulation
from helpers.serve.pages import PageManager
from tools.launch import DATA
from tools.worksheet import on_paper

TEXTS = DATA / "sheets"
MODEL, CARD, TOKENS = MODELS["Llama-3.1-8B"], CARDS["A100"], 8192
REPLIES, SLOTS, STEPS = [3, 6, 2, 5, 4, 1], 3, 12  # as many steps are drawn
LENGTHS, SIZE, FREE = {"A": 18, "B": 8, "C": 21}, 8, [5, 2, 9, 0, 7, 4, 10, 1, 3, 6, 8, 11]
ROW, D, SAME = 13, 27, 20
SHEET_STYLE = (TEXTS / "style.css").read_text(encoding="utf-8")

Blocks = dict[
    str, tuple[str, Sequence[Any], Iterable[Sequence[Any]]]
]  # kind, head, lines of a given and answers
Parts = tuple[dict[str, Any], dict[str, Any], Blocks]  # what is given, what is asked, and tables of both


def user_nbytes(n_kv_heads: int = MODEL.n_kv_heads, tokens: int = TOKENS) -> int:
    """Return the size of one user's KV entries in bytes, if the model had `n_kv_heads` KV heads."""
    return cache_nbytes(MODEL.layers, tokens) * n_kv_heads // MODEL.n_kv_heads


def users(bytes_per_weight: float = 2, user: int = user_nbytes()) -> int:
    """Return how many users fit on the card, next to the weights.

    Args:
        bytes_per_weight: bytes per number of the weights.
        user: bytes of one user's KV entries.
    """
    return users_that_fit(CARD.memory_nbytes, nbytes_of(MODEL.n_parameters, bytes_per_weight), user)


def memory() -> Parts:
    """Return the sheet on memory: bytes of a token and of the weights, and how many users fit on a card."""
    row, heads, card = MODEL.cache_nbytes_per_token(), MODEL.n_heads, CARD.memory_nbytes
    given = {"model": MODEL.name, "heads": heads, "card": card // GIB, "tokens": f"{TOKENS:,}"}
    given |= {"parameters": f"{MODEL.n_parameters / 1e9:.2f}", "gib": f"{GIB / 1e9:.3f}"}
    shared = {"layers": MODEL.n_layers, "kv_heads": MODEL.n_kv_heads, "dim": MODEL.head_dim}
    asked = {"bytes": 2, "row": f"{row:,}", "row_kib": row // 1024, "first_two": "K and V"}
    asked |= {"user": f"{user_nbytes() / GIB:g}", "all_users": users(user=user_nbytes(heads))}
    asked |= {"all_kib": row * heads // MODEL.n_kv_heads // 1024, "longer": "the rows; the weights stay"}
    asked |= {"longer_users": users(user=user_nbytes(tokens=2 * TOKENS))}
    rows = []
    for bits, size in ((16, 2), (8, 1), (4, 0.5)):
        weights = nbytes_of(MODEL.n_parameters, size)
        rows.append([f"{bits} bits", f"{weights / GIB:.1f}", f"{(card - weights) / GIB:.1f}", users(size)])
    squares = ["////"] * -(-nbytes_of(MODEL.n_parameters) // GIB) + [*range(1, users() + 1)]
    drawn = [["", *squares[n : n + 20]] for n in range(0, card // GIB, 20)]
    blocks: Blocks = {"fits": ("", ["a weight has", "weights, GiB", "left, GiB", "users"], rows)}
    return given | shared, asked | shared, blocks | {"squares": ("squares", [], drawn)}


def filled() -> tuple[PageManager, dict[str, list[int]], list[int]]:
    """Return the page pool after A, B and C have run, their block tables by name, and the tokens of C."""
    pool = PageManager(len(FREE), SIZE)
    pool.free = dict.fromkeys(FREE)
    tables = {name: [pool.allocate() for _ in range(pool.pages_needed(n))] for name, n in LENGTHS.items()}
    tokens = {name: [100 * k + n for n in range(LENGTHS[name])] for k, name in enumerate(LENGTHS)}
    for name, table in tables.items():
        pool.cache_full_pages(table, tokens[name], 0, LENGTHS[name])
    return pool, tables, tokens["C"]


def slots() -> Parts:
    """Return the sheet on serving: requests in slots over time, pages of requests, and shared prefixes."""
    pool, tables, c = filled()
    replies = ", ".join(f"{chr(65 + n)} {reply}" for n, reply in enumerate(REPLIES))
    given = {"slots": SLOTS, "replies": replies, "size": SIZE, "free": ", ".join(map(str, FREE))}
    given |= {"row": ROW, "tokens": D, "same": SAME}
    asked: dict[str, Any] = {"page": tables["A"][ROW // SIZE], "place": ROW % SIZE}
    blocks: Blocks = {}
    for name, kind in (("static", scheduler.StaticBatching), ("continuous", scheduler.Scheduler)):
        steps = simulation.slots_by_step(kind, REPLIES, SLOTS)
        there = [*steps, *[{}] * (STEPS - len(steps))]
        lines = [[f"slot {slot + 1}", *(step.get(slot, "") for step in there)] for slot in range(SLOTS)]
        blocks[name] = "slots", ["step", *range(1, STEPS + 1)], lines
        asked |= {f"steps_{name}": len(steps), f"idle_{name}": SLOTS * len(steps) - sum(REPLIES)}
    for late, before in (("", []), ("_late", [-1])):
        text = [*before, *c[:SAME], *range(900, 900 + D - SAME)]
        found = len(pool.match_prefix(text))
        asked |= {f"found{late}": found, f"run{late}": len(text) - SIZE * found}
    taken = [
        [
            f"{name}: {n} tokens",
            ", ".join(map(str, tables[name])),
            len(tables[name]),
            SIZE * len(tables[name]) - n,
        ]
        for name, n in LENGTHS.items()
    ]
    blocks["pages"] = "", ["text", "its pages, in order", "how many", "blank rows"], taken
    return given, asked, blocks


def sheet(name: str, parts: Parts, solved: bool) -> str:
    """Return a sheet as a page, blank or with the answers.

    Args:
        name: the name of its text in `tools/data/sheets/`.
        parts: what is given, what is asked, and the tables and drawings.
        solved: whether the answers are shown.
    """
    (given, asked, blocks), mark = parts, ' class="solved"' if solved else ""

    def block(found: re.Match[str]) -> str:
        kind, head, lines = blocks[found[1]]
        heads = "".join(f'<th scope="col">{one}</th>' for one in head)
        rows = "".join(
            f'<tr><th scope="row">{first}</th>'
            + "".join(f"<td{mark}>{one if solved else ''}</td>" for one in answers)
            for first, *answers in lines
        )
        return (
            f'<table class="grid {kind}" tabindex="0"><thead><tr>{heads}</thead><tbody>{rows}</tbody></table>'
        )

    text = re.sub(r"\{(\w+)\}", lambda found: str(given[found[1]]), (TEXTS / f"{name}.md").read_text("utf-8"))
    text = re.sub(r"\[(\w+)\]", lambda found: f"<u{mark}>{asked[found[1]] if solved else ''}</u>", text)
    body = markdown2html(re.sub(r"<<(\w+)>>", block, text))
    title = re.sub("^# (.+)", r"\1", text.partition("\n")[0]) + (": answers" if solved else "")
    return on_paper(title, body, SHEET_STYLE)


def sheets() -> dict[str, str]:
    """Return both sheets, blank and with answers, by file name."""
    result = {"memory": memory(), "slots": slots()}
    return {
        f"{name}{'-answers' if solved else ''}.html": sheet(name, parts, solved)
        for name, parts in result.items()
        for solved in (False, True)
    }
