"""Figures of whole runs: how often each query-key pair is scored."""

from __future__ import annotations

from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import LARGE, SMALL, number_repeated, pluralize, printable, require, shorten
from helpers.trace import Run, Trace, indices_of_ranges


def score_counts(run: Run, n_tokens: int) -> list[list[int]]:
    """Count how often each (query, key) pair of tokens is scored in the passes of a run.

    Args:
        run: the passes of one reply.
        n_tokens: the number of tokens that these passes processed.

    Returns:
        A row for each query; row i has the counts of keys 0 to i.
    """
    times = [[0] * (i + 1) for i in range(n_tokens)]
    for p in run.steps:
        part = p.parts[0]
        for query, visible in zip(part.queries, part.visible, strict=True):
            for key in indices_of_ranges(visible):
                times[query][key] += 1
    return times


def score_triangle(trace: Trace) -> Picture:
    """Draw how often each (query, key) pair of tokens is scored during a reply without the cache.

    There is a row for each query.

    Args:
        trace: a trace of one sequence, with at most 12 processed tokens.

    Raises:
        ValueError: more than 12 tokens were processed.
    """
    chosen = trace.run("uncached")
    n = 1 + max(token for p in chosen.steps for token in p.parts[0].queries)
    require(n <= 12, f"{n} tokens ran; expected at most 12 to draw: record fewer, such as max_new_tokens=8")
    times = score_counts(chosen, n)
    total, distinct = sum(map(sum, times)), sum(map(len, times))
    words = number_repeated([token.text for token in trace.sequences[0].tokens[:n]])
    again = [f"{distinct} cells, so {total - distinct}", "were scored again"]
    again = ["each cell once"] if total == distinct else again
    labels = ["once" if row[0] == 1 else f"{row[0]} times" for row in times]

    def draw(sheet: Sheet) -> None:
        left, top = 84.0, 40.0
        cell, right = 298 / max(n, 6), sheet.width - 14
        sheet.text(right, 54, str(total), at="right", size=LARGE, bold=True)
        for n_line, text in enumerate(["pairs scored in all", *again]):
            sheet.note(right, 80 + 22 * n_line, text, at="right")
        sheet.note(left - 10, top - 15, "attends to", at="right")
        for i, row in enumerate(times):
            y = top + cell * (i + 0.5)
            name = f"{i + 1} {shorten(words[i], left - 30, SMALL)}"
            sheet.note(left - 10, y, name, at="right", colour="ink")
            sheet.note(left + cell * (i + 1) + 6, y, labels[i])
            if cell >= 20 or i % 2 == 0:
                sheet.note(left + y - top, top - 15, str(i + 1), at="center")
            for j, count in enumerate(row):
                opacity, ink = _shade(count, len(chosen.steps))
                place = (left + cell * j + 1, y - cell / 2 + 1, cell - 2, cell - 2)
                sheet.box(*place, fill="query", opacity=opacity, edge="query", radius=3, line=0.8)
                sheet.note(place[0] + cell / 2 - 1, y, str(count), at="center", colour=ink)

    sentence = "; ".join(f"row {i + 1} ({printable(words[i])}): {row[0]}" for i, row in enumerate(times))
    once = ": each cell once" if total == distinct else f", {total - distinct} of them again"
    return Picture(
        draw,
        f"A triangle of {n} queries by {n} keys; {pluralize(len(chosen.steps), 'pass')} without the cache. "
        f"How often each cell of a row was scored: {sentence}. "
        f"Total {total} pairs over {distinct} cells{once}.",
    )


def _shade(count: int, n_passes: int) -> tuple[float, str]:
    """Return the opacity of a cell's blue fill, and the colour of the text on it.

    In the light and dark themes, "ink" is legible up to an opacity of 0.5, and "paper" on full blue.
    """
    share = (count - 1) / max(n_passes - 1, 1)
    return (1.0, "paper") if share == 1 else (0.08 + 0.42 * share, "ink")
