"""Figures of whole runs: when words come, what is kept, what is scored how often, what a pass costs."""

from __future__ import annotations

from helpers.plots.canvas import (
    GENERATED,
    GENERATED_FILL,
    INK,
    KEY,
    KEY_FILL,
    LARGE,
    LINE,
    PANEL,
    PAPER,
    QUERY,
    QUERY_FILL,
    SMALL,
    SOFT,
    TEXT,
    VALUE,
    VALUE_FILL,
    Picture,
    Sheet,
    blend,
    contrast,
    counted,
    listed,
    shorten,
    told,
    with_settings,
)
from helpers.trace import Pass, Run, Trace, spread


def pass_names(passes: list[Pass]) -> list[str]:
    """Name the passes of a reply: prefill, decode 1, decode 2, …"""
    names, decoded = [], 0
    for p in passes:
        decoded += p.phase == "decode"
        names.append(f"decode {decoded}" if p.phase == "decode" else p.phase)
    return names


@with_settings
def pause_and_drip(trace: Trace) -> Picture:
    """Draw a reply as a reader sees it, a pause and then a drip of words, over the rows that are kept.

    Args:
        trace: has a run "cached"; up to 12 positions run in it can be drawn.

    Returns:
        One time axis: a block for each pass, as wide as the positions it ran, a word over the end of
        each, and under it the rows of the cache. A schematic of work, not of seconds.

    Raises:
        ValueError: the run is too long to draw.
    """
    passes = trace.run("cached").steps
    tokens = trace.sequences[0].tokens
    widths = [p.counts["positions"] for p in passes]
    kept = [p.parts[0].kept[1] for p in passes]
    words = [tokens[p.parts[0].out[0].chosen].text for p in passes]
    if sum(widths) > 12:
        raise ValueError(f"the run has {sum(widths)} positions; expected at most 12: record with max_new=3")
    left, unit, step, stairs = 112.0, (700 - 112 - 62) / sum(widths), 25.0, 224.0
    ends = [left + unit * sum(widths[: n + 1]) for n in range(len(widths))]
    starts = [left, *ends[:-1]]
    below = stairs + max(step * kept[-1], 72) + 14
    sheet = Sheet(700, below + 20)
    _time_axis(sheet, starts, ends, widths)
    for end, word in zip(ends, words, strict=True):
        chip = min(unit - 8, 88)
        sheet.line((end, 79), (end, 96), colour=GENERATED, width=1.6)
        sheet.chip(end, 66, word, width=max(chip, 34), fill=GENERATED_FILL, edge=GENERATED)
    for p, end in zip(passes, ends, strict=True):
        for token in spread(p.parts[0].written):
            _cached_row(sheet, tokens[token].text, end, 684, stairs + step * token)
    sheet.text(18, stairs + 9, "kept in the cache", bold=True)
    for line, text in enumerate(("one row for each", "token that has run:", "a key over a value")):
        sheet.note(18, stairs + 32 + 20 * line, text)
    sheet.note(ends[0] - 6, below, "rows kept", at="right")
    for end, rows in zip(ends, kept, strict=True):
        sheet.text(end + 4, below, str(rows), bold=True)
    alt = (
        f"Time runs to the right, as work and not as seconds. You press Enter. "
        f"Prefill runs {counted(widths[0], 'token')} in one wide block: the pause. "
        f"Then {counted(len(passes) - 1, 'thin block')} of one token each: the drip. "
        f"{counted(len(passes), 'pass')}, {counted(len(words), 'word')} "
        f"({listed(list(map(told, words)))}), one at the end of each pass. "
        f"Rows kept in the cache after each pass: {listed([str(n) for n in kept])}."
    )
    return Picture(sheet.figure, alt, {"positions": widths, "kept": kept, "words": words})


def _time_axis(sheet: Sheet, starts: list[float], ends: list[float], widths: list[int]) -> None:
    """Blocks of the passes on the time axis, with the key that starts them."""
    for name, x, to in (("the pause", starts[0], ends[0]), ("the drip", ends[0], ends[-1])):
        if to > x:
            sheet.line((x + 5, 40), (x + 5, 34), (to - 5, 34), (to - 5, 40), colour=SOFT)
            sheet.text((x + to) / 2, 19, name, at="center", bold=True)
    sheet.note(52, 93, "you press", at="center")
    sheet.box(18, 106, 68, 36, fill=PANEL, edge=SOFT, radius=6, line=1.2)
    sheet.text(52, 124, "Enter", at="center", bold=True)
    for n, (x, to, positions) in enumerate(zip(starts, ends, widths, strict=True)):
        sheet.box(x + 1.5, 98, to - x - 3, 52, fill=QUERY_FILL, edge=QUERY, radius=5, line=1.2)
        if n == 0:
            sheet.text((x + to) / 2, 115, "prefill", at="center", bold=True)
            sheet.text((x + to) / 2, 135, f"{positions} tokens together", at="center", size=SMALL)
        else:
            wide = to - x > 70
            name = f"decode {n}" if wide else f"d{n}"
            sheet.text((x + to) / 2, 115, name, at="center", size=SMALL, bold=True)
            sheet.text((x + to) / 2, 135, "1 token" if wide else "1", at="center", size=SMALL)
    sheet.arrow(starts[0], 168, 688, 168, SOFT)
    sheet.note(starts[0], 187, "time: width is positions run, not seconds")


def _cached_row(sheet: Sheet, word: str, x: float, to: float, y: float) -> None:
    """One row of the cache, its K over its V, from when it was made."""
    sheet.box(x + 2, y, to - x - 2, 10, fill=KEY_FILL, edge=KEY, radius=2, line=0.8)
    sheet.box(x + 2, y + 10, to - x - 2, 10, fill=VALUE_FILL, edge=VALUE, radius=2, line=0.8)
    sheet.text(x - 6, y + 10, shorten(word, 90), at="right", size=SMALL)


def times_scored(run: Run, n_tokens: int) -> list[list[int]]:
    """Count in a reply's passes how often each (query, key) was scored; row i holds keys 0 to i."""
    times = [[0] * (i + 1) for i in range(n_tokens)]
    for p in run.steps:
        part = p.parts[0]
        for query, visible in zip(part.queries, part.visible, strict=True):
            for key in spread(visible):
                times[query][key] += 1
    return times


@with_settings
def triangle(trace: Trace, run: str = "uncached") -> Picture:
    """Draw who looks at whom over a whole reply, each cell holding how often it was scored.

    Args:
        trace: of one sequence; up to 24 tokens that ran.
        run: "uncached" shades by count; "cached" shades by pass.

    Returns:
        A triangle, rows are queries, columns keys; the total is counted cell by cell.

    Raises:
        ValueError: there are too many tokens to draw.
        KeyError: there is no such run.
    """
    chosen = trace.run(run)
    passes, tokens = chosen.steps, trace.sequences[0].tokens
    n = 1 + max(token for p in passes for token in p.parts[0].queries)
    if n > 24:
        raise ValueError(f"{n} tokens ran; expected at most 24 to draw: record fewer, such as max_new=8")
    times = times_scored(chosen, n)
    total, distinct = sum(map(sum, times)), sum(map(len, times))
    left, top, cell = 84.0, 40.0, 384 / max(n, 6)
    sheet = Sheet(left + cell * max(n, 6) + 148, top + cell * max(n, 2) + 18)
    sheet.note(left - 10, top - 15, "looks at", at="right")
    for i, row in enumerate(times):
        y = top + cell * (i + 0.5)
        sheet.text(left - 10, y, shorten(tokens[i].text, left - 16, SMALL), at="right", size=SMALL)
        size = min(SMALL, cell * 0.55)
        sheet.text(left + y - top, top - 15, str(i + 1), at="center", size=size, colour=SOFT)
        for j, count in enumerate(row):
            fill, ink = _shade(chosen, i, count, len(passes))
            x = left + cell * j
            sheet.box(x + 1, y - cell / 2 + 1, cell - 2, cell - 2, fill=fill, edge=QUERY, radius=3, line=0.8)
            if cell >= 15:
                size = min(TEXT, cell * 0.6)
                sheet.text(x + cell / 2, y, str(count), at="center", size=size, colour=ink)
        sheet.note(left + cell * (i + 1) + 8, y, _row_label(chosen, i, row))
    _triangle_total(sheet, total, distinct, cached=chosen.cache != "none")
    numbers = {"cells": times, "total": total, "distinct": distinct}
    return Picture(sheet.figure, _triangle_in_words(trace, run, times), numbers)


def _triangle_total(sheet: Sheet, total: int, distinct: int, *, cached: bool) -> None:
    right = sheet.width - 20
    sheet.text(right, 40, str(total), at="right", size=LARGE, bold=True)
    sheet.text(right, 64, "pairs scored in all", at="right", size=SMALL)
    again = [f"{distinct} cells, so", f"{total - distinct} pairs were", "scored again."]
    once = ["With the cache,", "each cell once."] if cached else ["each cell once"]
    lines = once if total == distinct else again
    for line, text in enumerate(lines):
        sheet.note(right, 92 + 20 * line, text, at="right")


def _triangle_in_words(trace: Trace, run: str, times: list[list[int]]) -> str:
    tokens, total, distinct = trace.sequences[0].tokens, sum(map(sum, times)), sum(map(len, times))
    said = "; ".join(f"row {i + 1} ({told(tokens[i].text)}): {row[0]}" for i, row in enumerate(times))
    once = ": each cell once." if total == distinct else f", {total - distinct} of them again."
    return (
        f"A triangle of {len(times)} queries by {len(times)} keys, the {run} run of "
        f"{counted(len(trace.run(run).steps), 'pass')}. "
        f"How often each cell of a row was scored: {said}. Total {total} pairs over {distinct} cells{once}"
    )


def _shade(run: Run, query: int, count: int, most: int) -> tuple[str, str]:
    """Fill and ink of a cell: by how often it was scored, or with a cache by the pass that scored it."""
    if run.cache == "none":
        share = (count - 1) / max(most - 1, 1)
        fill = QUERY if share == 1 else blend("#e3f1fa", QUERY, 0.78 * share**1.3)  # ink reads up to 0.78
    else:
        n = _pass_of(run, query)
        fill = (
            blend(QUERY_FILL, QUERY, 0.35) if n == 0 else (blend(PAPER, QUERY_FILL, 0.35), QUERY_FILL)[n % 2]
        )
    return fill, max(INK, PAPER, key=lambda ink: contrast(fill, ink))


def _pass_of(run: Run, token: int) -> int:
    """Which pass of the reply ran this token first, from 0."""
    return next(n for n, p in enumerate(run.steps) if token in spread(p.parts[0].new))


def _row_label(run: Run, token: int, row: list[int]) -> str:
    if run.cache == "none":
        return "once" if row[0] == 1 else f"{row[0]} times"
    return pass_names(run.steps)[_pass_of(run, token)]


@with_settings
def work_by_pass(trace: Trace) -> Picture:
    """Draw positions and pairs of each pass of a reply: done with the cache, avoided by it.

    Args:
        trace: has the runs "cached" and "uncached"; up to 12 passes.

    Returns:
        Two bar charts, each on its own scale; solid is done, hatched avoided.

    Raises:
        ValueError: there are too many passes to draw.
    """
    runs = {name: trace.run(name).steps for name in ("cached", "uncached")}
    names = pass_names(runs["cached"])
    if len(names) > 12:
        raise ValueError(f"the run has {len(names)} passes; expected at most 12 to draw")
    numbers = {
        name: {what: [p.counts[what] for p in passes] for what in ("positions", "pairs")}
        for name, passes in runs.items()
    }
    sheet = Sheet(700, 302)
    for x, what in ((18.0, "positions"), (366.0, "pairs")):
        _bars(sheet, x, what, numbers["cached"][what], numbers["uncached"][what])
    totals = {name: {what: sum(x) for what, x in work.items()} for name, work in numbers.items()}
    said = "; ".join(
        f"{what} by pass without the cache {', '.join(map(str, numbers['uncached'][what]))} "
        f"(total {totals['uncached'][what]}), with it {', '.join(map(str, numbers['cached'][what]))} "
        f"(total {totals['cached'][what]})"
        for what in ("positions", "pairs")
    )
    alt = f"Work of {counted(len(names), 'pass')}, {names[0]} first: {said}."
    return Picture(sheet.figure, alt, numbers)


def _bars(sheet: Sheet, left: float, what: str, done: list[int], without: list[int]) -> None:
    """One chart: hatched bars without the cache, the solid part done with it."""
    slot, base, tall = 316 / len(done), 252.0, 150.0 / max(without)
    title = {"positions": "positions run", "pairs": "pairs of a head"}[what]
    sheet.text(left, 26, title, bold=True)
    sheet.note(left, 48, f"{sum(without)} without the cache, {sum(done)} with it")
    for n, (solid, whole) in enumerate(zip(done, without, strict=True)):
        x, wide = left + slot * n + 3, slot - 6
        if whole > solid:
            top = base - tall * whole
            sheet.box(x, top, wide, tall * whole, fill=PAPER, edge=LINE, radius=0, hatched=True)
            if tall * (whole - solid) > 20:  # or its number would lie on the other
                sheet.note(x + wide / 2, top - 10, str(whole), at="center")
            sheet.box(x + 1.5, base - tall * solid - 20, wide - 3, 20, fill=PAPER, radius=0)
        sheet.box(x, base - tall * solid, wide, tall * solid, fill=INK, radius=0)
        sheet.text(x + wide / 2, base - tall * solid - 10, str(solid), at="center", size=SMALL, bold=True)
        sheet.note(x + wide / 2, base + 14, "P" if n == 0 else str(n), at="center")
    sheet.line((left, base), (left + 316, base), colour=SOFT)
    sheet.note(left, base + 32, "P prefill, then decode steps")
