"""The page pool of an engine's run: its requests over the steps, and the owners of each page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import ceil, sqrt
from typing import Any

from helpers.drawing.canvas import Sheet
from helpers.drawing.still import Still
from helpers.drawing.tables import Table
from helpers.drawing.words import SMALL, TEXT, text_width
from helpers.stepper.format import VIEW, fill
from helpers.stepper.view import View, one_of
from helpers.trace import EngineTrace, Share

POOL: dict[str, Any] = VIEW["pool"]
SUMMED = ("run", "found")  # so far; of the others the most
NO_PAGES = ("run", "waiting")  # what is counted where no pages are shown
NAMED = 8  # more requests than this are counted, not named
EDGE, TOP = 10, 34  # px: the margin, and where the lanes begin
# Of lines across and lines down: px from one to the next, 0 for none. As in css/pool.css, by request.
PATTERNS = ((0, 0), (5, 0), (0, 6), (10, 0), (8, 8), (0, 12))


Box = tuple[float, float, float, float]  # x, y, width, height


class Pool(View):
    """An engine's run: requests as lanes over steps, pages as a grid below, step by step.

    Args:
        trace: a record of an engine's run by `StepRecorder`.
        step: the initial step, which is also drawn, from 1. None shows the first step, and draws the first
            with the most pages in use.
        pages: whether the pages are shown.

    Raises:
        ValueError: the trace has no such step.
    """

    view = "pool"

    def __init__(self, trace: EngineTrace, step: int | None = None, pages: bool = True) -> None:
        one_of("pages", pages, [True, False])
        if step is not None and step not in range(1, len(trace.steps) + 1):
            raise ValueError(f"got step={step}, expected 1 to {len(trace.steps)}, the trace's steps")
        self.trace, self.step, self.paged = trace, (step or 1) - 1, pages
        self.counted = [what for what in POOL["counts"] if pages or what in NO_PAGES]
        self.marks = _marks([request.id for request in trace.requests])
        self.counts = [_counts(step.running, trace.page_size, len(step.waiting)) for step in trace.steps]
        owned = [sum(len(share.table) for share in one.running) for one in trace.steps]
        self.drawn = owned.index(max(owned)) if step is None else self.step

    @property
    def data(self) -> str:
        """The trace."""
        return self.trace.to_json()

    @property
    def options(self) -> dict[str, Any]:
        """The step that is shown at first, from 0, and whether its pages are."""
        return {"step": self.step, "pages": self.paged}

    def still(self) -> Still:
        """Return the run and the pages of one step."""
        pages = self.pages(self.drawn) if self.paged else []
        text = self.sentence(self.drawn)
        alt = [text]
        for what, name in (("owners", POOL["pages"]), ("findable", POOL["pagelegend"]["findable"])):
            those = [f"{n} {self.owners(page)}" for n, page in enumerate(pages) if page[what]]
            alt += [f"{name[0].upper()}{name[1:]}: {', '.join(those)}."] if those else []
        heads = [POOL["counts"][what] for what in self.counted]
        table = Table(self.counts_table(self.drawn), heads, [POOL["now"], ""])
        return Still(partial(self._draw, pages=pages), " ".join(alt), [text], table=table)

    def count(self, n: int, what: str) -> tuple[int, int]:
        """A count in a step, and until then: the sum of what is done, the most of what is there."""
        every = [count[what] for count in self.counts[: n + 1]]
        return every[n], sum(every) if what in SUMMED else max(every)

    def counts_table(self, n: int) -> list[list[str]]:
        """Each count in a step, and until then, as text."""
        message = []
        for what in self.counted:
            now, so_far = self.count(n, what)
            most = {"used": self.trace.n_pages, "run": self.trace.budget}.get(what)
            shown = fill(POOL["of"], used=now, pages=most) if most else f"{now:,}"
            message.append([shown, fill(POOL["so far" if what in SUMMED else "most"], soFar=so_far)])
        return message

    def owners(self, page: dict[str, Any]) -> str:
        """The letters of those who own a page, or whose text can still be found in it."""
        those = page["owners"] or [page["holder"]] * page["findable"]
        return "".join(self.marks[request] for request in those)

    def pages(self, n: int) -> list[dict[str, Any]]:
        """Each page in a step: its owners, whose text it holds, its rows before and after, if taken anew."""
        size, steps = self.trace.page_size, self.trace.steps
        blank = {"holder": -1, "place": 0, "before": 0, "filled": 0, "taken": False, "findable": False}
        pages: list[dict[str, Any]] = [{"owners": [], **blank} for _ in range(self.trace.n_pages)]
        for step in steps[: n + 1]:
            for share in step.running:
                for place, number in enumerate(share.table):
                    pages[number] |= {"holder": share.request, "place": place}
        before = {share.request: share for share in steps[n - 1].running} if n else {}
        for share in steps[n].running:
            was = before.get(share.request)
            had = share.found // size if not was or share.request in steps[n].preempted else len(was.table)
            for place, number in enumerate(share.table):
                page = pages[number]
                page["owners"].append(share.request)
                page["before"] = max(page["before"], _rows(share.start, place, size))
                page["filled"] = max(page["filled"], _rows(share.stop, place, size))
                page["taken"] |= place >= had
        for number in steps[n].findable:
            if not pages[number]["owners"]:
                pages[number] |= {"findable": True, "filled": size}
        return pages

    def stays(self) -> list[dict[str, Any]]:
        """The times that requests are in a slot, with what they do there; `back`: preempted at its end."""
        reached, stays = Counter[int](), list[dict[str, Any]]()
        for n, step in enumerate(self.trace.steps):
            now = {stay["request"]: stay for stay in stays if stay["to"] == n}
            for share in step.running:
                who = share.request
                stay = now.get(who)
                if not stay or stay["slot"] != share.slot or share.found or who in step.preempted:
                    stay = {"request": who, "slot": share.slot, "from": n, "to": n}
                    stay |= {"back": False, "blocks": []}
                    stays.append(stay)
                kind = self._kind(share, reached[who])
                if stay["blocks"] and stay["blocks"][-1]["kind"] == kind:
                    stay["blocks"][-1]["to"] = n + 1
                else:
                    stay["blocks"].append({"kind": kind, "from": n, "to": n + 1})
                stay["to"] = n + 1
                reached[who] = max(reached[who], share.stop)
            for stay in now.values():
                stay["back"] |= stay["to"] == n and stay["request"] in step.preempted
        return stays

    def _kind(self, share: Share, reached: int) -> str:
        if share.start == share.stop:
            return "idle"
        if share.start < reached:
            return "again"
        return "prompt" if share.start < self.trace.requests[share.request].prompt else "fresh"

    def sentence(self, n: int) -> str:
        """What a step is, in a sentence or some."""
        step, say, counts = self.trace.steps[n], POOL["say"], self.counts[n]

        def those(what: str, requests: list[int]) -> list[str]:
            named = ", ".join(self.marks[request] for request in requests[:NAMED])
            more = len(requests) - NAMED
            named = fill(say["more"], names=named, more=more) if more > 0 else named
            return [fill(say[what][len(requests) > 1], names=named, found=counts["found"])] * bool(requests)

        ran, idle = ([s.request for s in step.running if (s.stop > s.start) == on] for on in (True, False))
        who = [*(those("run", ran) or [say["nobody"]]), *those("idle", idle), *those("waiting", step.waiting)]
        shared = fill(say["shared"], shared=counts["shared"]) if counts["shared"] else ""
        first = fill(
            say["step" if self.paged else "slots"],
            **{"step": n + 1, "who": "; ".join(who), "used": counts["used"]},
            **{"pages": self.trace.n_pages, "shared": shared},
        )
        found = [share.request for share in step.running if share.found]
        rest = those("sent", step.preempted) + those("found", found) + those("left", step.left)
        return " ".join([first, *rest])

    def _draw(self, sheet: Sheet, pages: list[dict[str, Any]]) -> None:
        """Slots over steps, with who waits in the step that is drawn, and its pages."""
        stays, waiting = self.stays(), self.trace.steps[self.drawn].waiting
        lanes = 1 + max((stay["slot"] for stay in stays), default=0)
        high, unit = max(6, min(26, 260 // lanes)), (sheet.width - 2 * EDGE) / len(self.trace.steps)
        kinds = []
        for stay in stays:
            y = TOP + high * stay["slot"]
            for block in stay["blocks"]:
                x, wide = EDGE + unit * block["from"], unit * (block["to"] - block["from"])
                box, kind = (x, y, wide - 1, high - 2), block["kind"]
                kinds.append(kind)
                _doing(sheet, box, kind, stay["request"] * self.paged)
                face = {"prompt": "ink", "fresh": "generated fill"}.get(kind, "paper")
                ink = "paper" if kind == "prompt" else "ink"
                _letters(sheet, box, self.marks[stay["request"]], face, ink)
            if stay["back"]:
                _doing(sheet, (x, y, wide - 1, high - 2), "back")
        x, bottom = EDGE + unit * self.drawn, TOP + high * lanes
        sheet.box(x, TOP - 4, max(3, unit), bottom - TOP + 6, edge="ink", line=1.6, radius=0)
        sentence = fill(POOL["at"], step=self.drawn + 1, steps=len(self.trace.steps))
        far = sheet.width - EDGE - text_width(sentence, TEXT, bold=True)
        sheet.text(min(x, far), 16, sentence, bold=True)
        line = ", ".join(self.marks[one] for one in waiting[:NAMED]) + ", …" * (len(waiting) > NAMED)
        sheet.note(EDGE, bottom + 18, f"{POOL['line']}: {line or POOL['nobody']}")
        kinds += ["back"] * any(stay["back"] for stay in stays)
        marks: dict[str, Callable[..., None]] = {
            POOL["legend"][kind]: partial(_doing, sheet, kind=kind) for kind in dict.fromkeys(kinds)
        }
        _legend(sheet, bottom + 42, marks)
        if pages:
            self._grid(sheet, pages, sheet.bottom + 14)

    def _grid(self, sheet: Sheet, pages: list[dict[str, Any]], top: float) -> None:
        """Each page with its rows and the letters of its owners, as far as there is room."""
        room = sheet.width - 2 * EDGE
        most = int(room / max(12, min(66, sqrt(room * 260 / len(pages)))))
        columns = ceil(len(pages) / ceil(len(pages) / most))
        wide = min(66, room // columns)
        high = max(12, min(36, round(wide * 0.62)))
        for n, page in enumerate(pages):
            x, y, owned = EDGE + wide * (n % columns), top + high * (n // columns), bool(page["owners"])
            box = (x + 1, y + 1, wide - 3, high - 3)
            if owned:
                rows = (x + 1, y + 1, (wide - 3) * page["filled"] / self.trace.page_size, high - 3)
                sheet.box(*rows, fill="key fill", radius=0)
                _pattern(sheet, rows, page["holder"], "key")
            _edge(sheet, box, page)
            letters = self.owners(page)
            if text_width(letters, SMALL, bold=True) + 4 > wide - 3:
                letters = f"×{len(page['owners'])}"
            _letters(sheet, box, letters, "key fill" if owned else "none", "ink" if owned else "soft")
        sentence = POOL["pagelegend"]
        marks: dict[str, Callable[..., None]] = {
            sentence["before"]: partial(_edge, sheet, page={"owners": [0]}, face="key fill")
        }
        if any(page["findable"] for page in pages):
            marks[sentence["findable"]] = partial(_edge, sheet, page={"owners": [], "findable": True})
        _legend(sheet, sheet.bottom + 16, marks)

    def __repr__(self) -> str:
        n, trace = len(self.marks), self.trace
        return f"Pool({trace.name}: {n} requests, {trace.n_pages} pages, {len(trace.steps)} steps)"


def _marks(ids: list[str]) -> list[str]:
    """What a page shows of each request: its id where all of them are that short, else letters."""
    if len({*ids}) == len(ids) and all(re.fullmatch("[A-Za-z][A-Za-z0-9]?", id) for id in ids):
        return ids
    return [chr(65 + n % 26) + (str(n // 26) if n >= 26 else "") for n in range(len(ids))]


def _rows(tokens: int, place: int, size: int) -> int:
    """Rows of a text's first tokens in the page at a place."""
    return max(0, min(size, tokens - place * size))


def _counts(running: list[Share], size: int, waiting: int) -> dict[str, int]:
    rows, owners = dict[int, int](), Counter[int]()
    for share in running:
        owners.update(share.table)
        for place, page in enumerate(share.table):
            rows[page] = max(rows.get(page, 0), _rows(share.stop, place, size))
    return {
        "run": sum(share.stop - share.start for share in running),
        "found": sum(share.found for share in running),
        "used": len(rows),
        "wasted": sum(size - filled for filled in rows.values()),
        "waiting": waiting,
        "shared": sum(n > 1 for n in owners.values()),
    }


def _pattern(sheet: Sheet, box: Box, request: int, colour: str) -> None:
    """Lines by which a request is told from its neighbours without colour."""
    x, y, wide, high = box
    across, down = PATTERNS[request % len(PATTERNS)] if high > SMALL else (0, 0)
    for n in range(3, int(high), across) if across else ():
        sheet.box(x, y + n, wide, 1, fill=colour, share=0.4, radius=0)
    for n in range(3, int(wide), down) if down else ():
        sheet.box(x + n, y, 1, high, fill=colour, share=0.4, radius=0)


def _edge(sheet: Sheet, box: Box, page: dict[str, Any], face: str = "none") -> None:
    """The edge of a page: heavy with several owners, dashed with none, pale where nothing can be found."""
    owners, line = len(page["owners"]), "key" if page["owners"] or page["findable"] else "line"
    sheet.box(*box, fill=face, edge=line, line=1 + 1.4 * (owners > 1), dashed=not owners, radius=2)


def _doing(sheet: Sheet, box: Box, kind: str, request: int = 0) -> None:
    """What a request does: its prompt runs, its words, tokens again, or nothing."""
    x, y, wide, high = box
    if kind == "back":
        return sheet.line((x + wide, y), (x + wide, y + high), width=3)
    faces = {"prompt": "ink", "fresh": "generated fill"}
    sheet.box(*box, fill=faces.get(kind, "paper"), edge="none" if kind in faces else "soft", radius=0)
    if kind == "fresh":
        _pattern(sheet, box, request, "generated")
    for n in range(8, int(wide) - 2, 6) if kind == "again" else ():
        sheet.line((x + n - 5, y + high - 2), (x + n, y + 2), colour="soft", width=1)


def _letters(sheet: Sheet, box: Box, text: str, fill: str, colour: str) -> None:
    """Write letters in the middle of a box, on its ground, as far as there is room."""
    x, y, wide, high = box
    room = text_width(text, SMALL, bold=True) + 4
    if text and room < wide and high > SMALL:
        sheet.box(x + (wide - room) / 2, y + (high - 16) / 2, room, 16, fill=fill)
        sheet.text(x + wide / 2, y + high / 2, text, at="center", size=SMALL, colour=colour, bold=True)


def _legend(sheet: Sheet, y: float, items: dict[str, Callable[..., None]]) -> None:
    """Marks and what they mean, in as many lines as it takes."""
    x = float(EDGE)
    for output, draw in items.items():
        far = 28 + text_width(output, SMALL)
        x, y = (EDGE, y + 22) if x + far > sheet.width else (x, y)
        draw((x, y - 7, 20, 14))
        sheet.note(x + 28, y, output)
        x += far + 18
