"""Two worksheets for a class, on memory and on serving. site.py writes both, blank and with answers.

Each worksheet fits on one sheet of paper. Its text is a Markdown template in `tools/data/sheets/`, in which
{…} is replaced by a given value, […] by a blank or an answer, and <<…>> by a table or a drawing. All values
and answers are computed here, with the functions from `helpers` that the notebooks also use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nbconvert.filters import markdown2html

from helpers.cost.layers import GIB, cache_nbytes, nbytes_of, users_that_fit
from helpers.cost.models import CARDS, MODELS
from helpers.serve import scheduler, simulation
from helpers.serve.pages import PageManager
from tools.launch import DATA
from tools.worksheet import printable_page

TEXTS = DATA / "sheets"
MODEL, CARD, TOKENS = MODELS["Llama-3.1-8B"], CARDS["A100"], 8192
REPLIES, SLOTS, STEPS = [3, 6, 2, 5, 4, 1], 3, 12  # as many steps are drawn
LENGTHS, SIZE, FREE = {"A": 18, "B": 8, "C": 21}, 8, [5, 2, 9, 0, 7, 4, 10, 1, 3, 6, 8, 11]
ROW, D, SAME = 13, 27, 20
SHEET_STYLE = (TEXTS / "style.css").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A table or a drawing in a worksheet: its CSS class, the cells of its header, and its rows.

    The first cell of each row is given. The other cells are answers, and are empty in the blank worksheet.
    """

    css_class: str
    header: Sequence[Any]
    rows: Iterable[Sequence[Any]]


class SheetParts(NamedTuple):
    """What is inserted into a worksheet's template: given values, answers, and tables or drawings.

    Each of them is stored by its name in the template.
    """

    given: dict[str, Any]
    answers: dict[str, Any]
    blocks: dict[str, Block]


def kv_nbytes_per_user(n_kv_heads: int = MODEL.n_kv_heads, tokens: int = TOKENS) -> int:
    """Return the size in bytes of the KV entries per user, for a context of `tokens` tokens.

    The model is MODEL, but with `n_kv_heads` KV heads.
    """
    return cache_nbytes(MODEL.layers, tokens) * n_kv_heads // MODEL.n_kv_heads


def max_users(bytes_per_weight: float = 2, nbytes_per_user: int = kv_nbytes_per_user()) -> int:
    """Return the number of users whose KV entries fit in the memory of CARD, in addition to the weights.

    Args:
        bytes_per_weight: bytes per weight of the model.
        nbytes_per_user: size of the KV entries per user, in bytes.
    """
    return users_that_fit(
        CARD.memory_nbytes, nbytes_of(MODEL.n_parameters, bytes_per_weight), nbytes_per_user
    )


def memory_sheet() -> SheetParts:
    """Return the values and answers for the worksheet on memory.

    Students compute the bytes per token in the KV cache, the bytes of the weights, and how many users fit.
    """
    row, heads, card = MODEL.cache_nbytes_per_token(), MODEL.n_heads, CARD.memory_nbytes
    given = {"model": MODEL.name, "heads": heads, "card": card // GIB, "tokens": f"{TOKENS:,}"}
    given |= {"parameters": f"{MODEL.n_parameters / 1e9:.2f}", "gib": f"{GIB / 1e9:.3f}"}
    shared = {"layers": MODEL.n_layers, "kv_heads": MODEL.n_kv_heads, "dim": MODEL.head_dim}
    asked = {"bytes": 2, "row": f"{row:,}", "row_kib": row // 1024, "first_two": "K and V"}
    asked |= {
        "user": f"{kv_nbytes_per_user() / GIB:g}",
        "all_users": max_users(nbytes_per_user=kv_nbytes_per_user(heads)),
    }
    asked |= {"all_kib": row * heads // MODEL.n_kv_heads // 1024, "longer": "the rows; the weights stay"}
    asked |= {"longer_users": max_users(nbytes_per_user=kv_nbytes_per_user(tokens=2 * TOKENS))}
    rows = []
    for bits, size in ((16, 2), (8, 1), (4, 0.5)):
        weights = nbytes_of(MODEL.n_parameters, size)
        rows.append(
            [f"{bits} bits", f"{weights / GIB:.1f}", f"{(card - weights) / GIB:.1f}", max_users(size)]
        )
    squares = ["////"] * -(-nbytes_of(MODEL.n_parameters) // GIB) + [*range(1, max_users() + 1)]
    drawn = [["", *squares[n : n + 20]] for n in range(0, card // GIB, 20)]
    blocks = {"fits": Block("", ["a weight has", "weights, GiB", "left, GiB", "users"], rows)}
    blocks["squares"] = Block("squares", [], drawn)
    return SheetParts(given | shared, asked | shared, blocks)


class FilledPool(NamedTuple):
    """A page pool that contains the KV entries of the requests A, B and C.

    Attributes:
        pool: the pool.
        block_tables: the block table of each request, by its name.
        c_ids: the token ids of request C.
    """

    pool: PageManager
    block_tables: dict[str, list[int]]
    c_ids: list[int]


def filled_page_pool() -> FilledPool:
    """Allocate pages for the requests A, B and C in a new pool, and cache their full pages.

    The pages are allocated in the order of FREE.
    """
    pool = PageManager(len(FREE), SIZE)
    pool.free = dict.fromkeys(FREE)
    tables = {name: [pool.allocate() for _ in range(pool.pages_needed(n))] for name, n in LENGTHS.items()}
    tokens = {name: [100 * k + n for n in range(LENGTHS[name])] for k, name in enumerate(LENGTHS)}
    for name, table in tables.items():
        pool.cache_full_pages(table, tokens[name], 0, LENGTHS[name])
    return FilledPool(pool, tables, tokens["C"])


def serving_sheet() -> SheetParts:
    """Return the values and answers for the worksheet on serving.

    Its topics are the use of slots in each step, the pages of each request, and shared prefixes.
    """
    pool, tables, c = filled_page_pool()
    replies = ", ".join(f"{chr(65 + n)} {reply}" for n, reply in enumerate(REPLIES))
    given = {"slots": SLOTS, "replies": replies, "size": SIZE, "free": ", ".join(map(str, FREE))}
    given |= {"row": ROW, "tokens": D, "same": SAME}
    asked: dict[str, Any] = {"page": tables["A"][ROW // SIZE], "place": ROW % SIZE}
    blocks: dict[str, Block] = {}
    for name, kind in (("static", scheduler.StaticBatching), ("continuous", scheduler.Scheduler)):
        steps = simulation.slots_by_step(kind, REPLIES, SLOTS)
        there = [*steps, *[{}] * (STEPS - len(steps))]
        lines = [[f"slot {slot + 1}", *(step.get(slot, "") for step in there)] for slot in range(SLOTS)]
        blocks[name] = Block("slots", ["step", *range(1, STEPS + 1)], lines)
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
    blocks["pages"] = Block("", ["text", "its pages, in order", "how many", "blank rows"], taken)
    return SheetParts(given, asked, blocks)


def sheet_page(name: str, parts: SheetParts, solved: bool) -> str:
    """Return a worksheet as an HTML page, blank or with the answers.

    Args:
        name: the name of the template in `tools/data/sheets/`, without its extension.
        parts: the values, answers, tables and drawings to insert.
        solved: whether the answers are shown.
    """
    (given, answers, blocks), mark = parts, ' class="solved"' if solved else ""

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
    text = re.sub(r"\[(\w+)\]", lambda found: f"<u{mark}>{answers[found[1]] if solved else ''}</u>", text)
    body = markdown2html(re.sub(r"<<(\w+)>>", block, text))
    title = re.sub("^# (.+)", r"\1", text.partition("\n")[0]) + (": answers" if solved else "")
    return printable_page(title, body, SHEET_STYLE)


def sheet_pages() -> dict[str, str]:
    """Return the pages of both worksheets, blank and with answers, as {file name: HTML}."""
    result = {"memory": memory_sheet(), "slots": serving_sheet()}
    return {
        f"{name}{'-answers' if solved else ''}.html": sheet_page(name, parts, solved)
        for name, parts in result.items()
        for solved in (False, True)
    }
