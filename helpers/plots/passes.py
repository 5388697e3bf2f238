"""Figures of whole runs: when words come, what is kept, what is scored how often, what a pass costs."""

from __future__ import annotations

from itertools import pairwise

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import LARGE, SMALL, counted, listed, need, numbered, shorten, text_width, told
from helpers.trace import Pass, Run, Trace, spread


def pass_names(passes: list[Pass]) -> list[str]:
    """Name the passes of a reply: prefill, decode 1, decode 2, …"""
    names, decoded = [], 0
    for p in passes:
        decoded += p.phase == "decode"
        names.append(f"decode {decoded}" if p.phase == "decode" else p.phase)
    return names


def pause_and_drip(trace: Trace) -> Picture:
    """Draw a reply as a reader sees it, a pause and then a drip of words, over the rows that are kept.

    Args:
        trace: has a run "cached"; up to 12 tokens run in it can be drawn.

    Returns:
        One axis of work: a block for each pass, as wide as the tokens it ran, a word over the end of
        each, and under it the rows of the cache.

    Raises:
        ValueError: the run is too long to draw.
    """
    passes, tokens = trace.run("cached").steps, trace.sequences[0].tokens
    widths = [p.counts["positions"] for p in passes]
    kept = [p.parts[0].kept[1] for p in passes]
    words = [tokens[p.parts[0].out[0].chosen].text for p in passes]
    got = f"the run has {sum(widths)} tokens to run"
    need(sum(widths) <= 12, f"{got}; expected at most 12: record with max_new=3")

    def draw(sheet: Sheet) -> None:
        left, aside = 20.0 if sheet.narrow else 112.0, min(56, text_width(words[-1][:9]) / 2 + 14)
        unit = (sheet.width - left - aside) / sum(widths)
        edges = [left + unit * sum(widths[:n]) for n in range(len(widths) + 1)]
        top = _words_over(sheet, edges, words)
        _work_axis(sheet, edges, widths, top)
        stairs = _kept_heading(sheet, top)
        for p, end in zip(passes, edges[1:], strict=True):
            for token in spread(p.parts[0].written):
                _cached_row(sheet, tokens[token].text, end, sheet.width - 14, stairs + 25 * token)
        below = max(stairs + 25 * kept[-1], sheet.bottom if sheet.narrow else stairs + 80) + 14
        sheet.note(edges[1] - 6, below, "rows kept", at="right")
        for end, rows in zip(edges[1:], kept, strict=True):
            sheet.text(end + 4, below, str(rows), bold=True)

    alt = (
        f"Work runs to the right, counted in tokens run and not in seconds. You press Enter. "
        f"Prefill runs {counted(widths[0], 'token')} in one wide block: the pause. "
        f"Then {counted(len(passes) - 1, 'thin block')} of one token each: the drip. "
        f"{counted(len(passes), 'pass')}, {counted(len(words), 'word')} "
        f"({listed([told(word) for word in words])}), one at the end of each pass. "
        f"Rows kept in the cache after each pass: {listed([str(n) for n in kept])}."
    )
    return Picture(draw, alt)


def _words_over(sheet: Sheet, edges: list[float], words: list[str]) -> float:
    """Write each word over the end of its pass, on two levels if need be; return the blocks' top."""
    step = min((b - a for a, b in pairwise(edges[1:])), default=88.0)
    wide = [text_width(word[:100]) + 10 for word in words]
    levels = 1 if max(wide) <= step - 6 else 2
    top = 70.0 + 30 * levels
    for name, x, to in (("the pause", edges[0], edges[1]), ("the drip", edges[1], edges[-1])):
        if to > x:
            sheet.line((x + 5, 40), (x + 5, 34), (to - 5, 34), (to - 5, 40), colour="soft")
            sheet.text((x + to) / 2, 19, name, at="center", bold=True)
    for n, (end, word, room) in enumerate(zip(edges[1:], words, wide, strict=True)):
        y = 66.0 + 30 * (levels == 2 and n % 2 == 0)
        width = max(34.0, min(room, step * levels - 6))
        sheet.line((end, y + 13), (end, top), colour="generated", width=1.6)
        sheet.chip(end, y, word, width=width, fill="generated fill", edge="generated")
    return top


def _work_axis(sheet: Sheet, edges: list[float], widths: list[int], top: float) -> None:
    """Blocks of the passes on the axis of work, and where there is room the key that starts them."""
    if not sheet.narrow:
        sheet.note(52, top - 5, "you press", at="center")
        sheet.box(18, top + 8, 68, 36, fill="panel", edge="soft", radius=6, line=1.2)
        sheet.text(52, top + 26, "Enter", at="center", bold=True)
    for n, (x, to, positions) in enumerate(zip(edges, edges[1:], widths, strict=False)):
        sheet.box(x + 1.5, top, to - x - 3, 52, fill="query fill", edge="query", radius=5, line=1.2)
        roomy = to - x > 70
        name = "prefill" if n == 0 else f"decode {n}" if roomy else f"d{n}"
        told_of = counted(positions, "token") + (" together" if positions > 1 and to - x > 130 else "")
        sheet.text((x + to) / 2, top + 17, name, at="center", size=SMALL, bold=True)
        sheet.text((x + to) / 2, top + 37, told_of if roomy else str(positions), at="center", size=SMALL)
    sheet.arrow(edges[0], top + 68, sheet.width - 14, top + 68, "soft")
    sheet.note(edges[0], top + 86, "work: tokens run, not seconds")


def _kept_heading(sheet: Sheet, top: float) -> float:
    """Say what the staircase is, beside it or above it; return where it begins."""
    heading, lines = "kept in the cache", ["a row for each", "token that has run:", "a key over a value"]
    if sheet.narrow:
        lines = ["a row for each token that has run,", "its key over its value"]
    y = top + (118 if sheet.narrow else 134)
    sheet.text(18, y, heading, bold=True)
    for n, line in enumerate(lines):
        sheet.note(18, y + 22 + 19 * n, line)
    return y + 56 if sheet.narrow else y - 9


def _cached_row(sheet: Sheet, word: str, x: float, to: float, y: float) -> None:
    """One row of the cache, its K over its V, from when it was made."""
    sheet.box(x + 2, y, to - x - 2, 10, fill="key fill", edge="key", radius=2, line=0.8)
    sheet.box(x + 2, y + 10, to - x - 2, 10, fill="value fill", edge="value", radius=2, line=0.8)
    sheet.text(x - 6, y + 10, shorten(word, 84, SMALL), at="right", size=SMALL)


def times_scored(run: Run, n_tokens: int) -> list[list[int]]:
    """Count in a reply's passes how often each (query, key) was scored; row i holds keys 0 to i."""
    times = [[0] * (i + 1) for i in range(n_tokens)]
    for p in run.steps:
        part = p.parts[0]
        for query, visible in zip(part.queries, part.visible, strict=True):
            for key in spread(visible):
                times[query][key] += 1
    return times


def triangle(trace: Trace, run: str = "uncached") -> Picture:
    """Draw who looks at whom over a whole reply, each cell holding how often it was scored.

    Args:
        trace: of one sequence; up to 12 tokens that ran.
        run: "uncached" shades by count; "cached" shades by pass.

    Returns:
        A triangle, rows are queries, columns keys; the total is counted cell by cell.

    Raises:
        ValueError: there are too many tokens to draw.
        KeyError: there is no such run.
    """
    chosen = trace.run(run)
    n = 1 + max(token for p in chosen.steps for token in p.parts[0].queries)
    need(n <= 12, f"{n} tokens ran; expected at most 12 to draw: record fewer, such as max_new=8")
    times = times_scored(chosen, n)
    total, distinct = sum(map(sum, times)), sum(map(len, times))
    words = numbered([token.text for token in trace.sequences[0].tokens[:n]])
    labels = ["once" if row[0] == 1 else f"{row[0]} times" for row in times]
    if chosen.cache != "none":
        labels = [pass_names(chosen.steps)[first_pass(chosen, i)] for i in range(n)]

    def draw(sheet: Sheet) -> None:
        left, top = (72.0, 92.0) if sheet.narrow else (90.0, 40.0)
        cell = (190 if sheet.narrow else 380) / max(n, 6)
        _triangle_total(sheet, total, distinct)
        sheet.note(left - 10, top - 15, "looks at", at="right")
        for i, row in enumerate(times):
            y = top + cell * (i + 0.5)
            sheet.note(left - 10, y, shorten(words[i], left - 12, SMALL), at="right", colour="ink")
            sheet.note(left + cell * (i + 1) + 6, y, labels[i])
            if cell >= 20 or i % 2 == 0:
                sheet.note(left + y - top, top - 15, str(i + 1), at="center")
            for j, count in enumerate(row):
                share, ink = _shade(chosen, i, count)
                place = (left + cell * j + 1, y - cell / 2 + 1, cell - 2, cell - 2)
                sheet.box(*place, fill="query", share=share, edge="query", radius=3, line=0.8)
                sheet.note(place[0] + cell / 2 - 1, y, str(count), at="center", colour=ink)

    return Picture(draw, _triangle_in_words(trace, run, times, words))


def first_pass(run: Run, token: int) -> int:
    """Return which pass of the reply, from 0, ran a token first."""
    return next(n for n, p in enumerate(run.steps) if token in spread(p.parts[0].new))


def _triangle_total(sheet: Sheet, total: int, distinct: int) -> None:
    right = sheet.width - 14
    sheet.text(right, 24, str(total), at="right", size=LARGE, bold=True)
    again = [f"{distinct} cells, so {total - distinct}", "were scored again"]
    lines = ["pairs scored in all", *(["each cell once"] if total == distinct else again)]
    if sheet.narrow:
        right, lines = right - 70, [lines[0], " ".join(lines[1:])]
    for line, text in enumerate(lines):
        sheet.note(right, (24 if sheet.narrow else 50) + 22 * line, text, at="right")


def _triangle_in_words(trace: Trace, run: str, times: list[list[int]], words: list[str]) -> str:
    total, distinct = sum(map(sum, times)), sum(map(len, times))
    said = "; ".join(f"row {i + 1} ({told(words[i])}): {row[0]}" for i, row in enumerate(times))
    once = ": each cell once." if total == distinct else f", {total - distinct} of them again."
    return (
        f"A triangle of {len(times)} queries by {len(times)} keys, the {run} run of "
        f"{counted(len(trace.run(run).steps), 'pass')}. "
        f"How often each cell of a row was scored: {said}. Total {total} pairs over {distinct} cells{once}"
    )


def _shade(run: Run, query: int, count: int) -> tuple[float, str]:
    """Share of blue in a cell and the ink on it: by how often it was scored, or by the pass that scored it.

    Ink reads on up to a half of blue in either theme, paper on all of it.
    """
    if run.cache == "none":
        share = (count - 1) / max(len(run.steps) - 1, 1)
        return (1.0, "paper") if share == 1 else (0.08 + 0.42 * share, "ink")
    n = first_pass(run, query)
    return (0.45 if n == 0 else (0.08, 0.25)[n % 2]), "ink"
