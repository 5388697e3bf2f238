"""What a view of a trace has to show, worked out from the trace by other means than the view's."""

from __future__ import annotations

from helpers.trace import Pass, Trace, spread


def expected_marks(trace: Trace, name: str, index: int) -> list[list[str]]:
    """The grid of one pass, worked out from the trace's visibility alone."""
    times: dict[tuple[int, int], int] = {}
    events = trace.run(name).events[: index + 1]
    live: dict[int, list[int]] = {}
    for event in events:
        assert isinstance(event, Pass)
        part = event.parts[0]
        live = {q: spread(ranges) for q, ranges in zip(part.queries, part.visible, strict=True)}
        if event.phase == "training":
            continue
        for query, keys in live.items():
            for key in keys:
                times[query, key] = times.get((query, key), 0) + 1
    size = max(live) + 1

    def mark(query: int, key: int) -> str:
        count = times.get((query, key), 0)
        if query not in live:
            return "○" if count else ""
        return "×" if key not in live[query] else str(count) if count > 1 else "●"

    return [[mark(query, key) for key in range(size)] for query in range(size)]
