"""One pass of a run as plain facts: what the picture of it shows, and the numbers beneath it say."""

from __future__ import annotations

from collections import Counter

from helpers.stepper.format import VIEW, fill, percent, visible
from helpers.trace import Run, Trace, spread, weight_key

COLUMNS = 7  # of a longer text the last ones


class Moment:
    """A pass, and what came before it.

    Attributes:
        columns: the tokens that are shown, by index.
        heads, shown: the heads of this layer that were recorded, and those whose mean stands in the grid.
        visible: what each token that runs may look at.
        gives: the token that a line gives, or in training its target.
    """

    def __init__(self, trace: Trace, run: Run, index: int, layer: int = 0, head: int | None = None) -> None:
        self.trace, self.run, self.index, self.layer = trace, run, index, layer
        self.passes = [event.at(layer) for event in run.passes[: index + 1]]
        self.event, self.part = self.passes[-1], self.passes[-1].parts[0]
        self.heads = [head for of, head in trace.recorded if of == layer]
        self.shown = self.heads if head is None else [head]
        self.tokens, self.queries = trace.sequences[0].tokens, self.part.queries
        self.visible = {q: spread(seen) for q, seen in zip(self.queries, self.part.visible, strict=True)}
        left_out = {"v": [1]}  # a page may send no shapes
        shape = next((s for s in self.event.shapes if s["layer"] == layer), left_out)
        kept = {name: size for name, size in shape.items() if name != "layer" and size}
        self.state = None if shape["v"] else kept  # in place of rows
        self.there = {*spread(self.part.read), *self.queries} if self.state is None else set()
        self.columns = range(1 + max(self.queries))[-COLUMNS:]
        self.keeps = run.cache != "none" and self.event.phase != "training"
        self.gives = {out.query: out.chosen for out in self.part.out}
        if self.part.target is not None:
            self.gives = dict(zip(self.queries, self.part.target, strict=True))
        self.times: Counter[tuple[int, int]] = Counter()  # how often each pair was scored up to this pass
        self.seen: dict[int, list[int]] = {}
        for part in (event.parts[0] for event in self.passes if event.phase != "training"):
            for query, seen in zip(part.queries, part.visible, strict=True):
                self.seen[query] = spread(seen)
                self.times.update((query, key) for key in self.columns if key in self.seen[query])

    @property
    def drawer(self) -> str:
        """What keeps rows, or a state, with the kind of layer where there are several."""
        if self.state is None and not self.keeps:
            return VIEW["drawer"]["drops" if self.part.target is None else "training"]
        types = self.trace.model.layer_types
        name = VIEW["drawer"]["keeps" if self.state is None else "state"]
        return f"{name} · {types[self.layer]}" if types else name

    @property
    def state_text(self) -> str:
        """What a layer keeps in place of rows, by the shapes."""
        sizes = {name: " × ".join(map(str, size[1:])) for name, size in (self.state or {}).items()}
        shapes = [fill(VIEW["state"]["shape"], name=name, shape=shape) for name, shape in sizes.items()]
        return ", ".join(shapes) or VIEW["state"]["empty"]

    def mark(self, query: int, key: int) -> str:
        """What a pair is: "now", how often it was scored by now, "earlier", "masked", or nothing."""
        times = self.times[query, key]
        if query not in self.visible:
            return "earlier" if times else ""
        if key not in self.visible[query]:
            return "masked" if key in self.there else ""
        return f"{times:,}" if times > 1 else "now"

    def row(self, token: int) -> str:
        """What happens to a token's row of K and V: a key of `rows` in view.json, or nothing."""
        for state in ("written", "read"):
            if token in spread(getattr(self.part, state)):
                return state
        if self.state is not None or token in self.visible:
            return "" if self.state is not None else "made" if self.event.counts["kv_rows"] else "read"
        return "evicted" if self.keeps and token in self.seen else ""

    def head_name(self, heads: list[int]) -> str:
        """The name of a head, or of the mean of several."""
        if len(heads) != 1:
            return VIEW["labels"]["mean"]
        names = self.trace.model.head_names
        return names[heads[0]] if names else fill(VIEW["labels"]["head"], number=heads[0] + 1)

    def weights(self, query: int, heads: list[int]) -> dict[int, float]:
        """The mean over some heads of how much a token that has run looks at each; {} if not recorded."""
        seen = self.visible.get(query) or self.seen.get(query, [])
        keys = [weight_key(0, query, self.layer, head) for head in heads]
        if not all(len(self.trace.weights.get(key, ())) == len(seen) for key in keys):
            return {}
        rows = [self.trace.attention_weights(query, self.layer, head) for head in heads]
        return {token: float(sum(row[n] for row in rows)) / len(rows) for n, token in enumerate(seen)}

    def context(self, query: int, head: int) -> float | None:
        """A head's context, where it is one number; that of a token that runs again is looked up."""
        for part in (event.parts[0] for event in self.run.passes):
            new = spread(part.new)
            rows = part.contexts.get(f"{self.layer}.{head}")
            if rows and query in new and len(rows[new.index(query)]) == 1:
                return rows[new.index(query)][0]
        return None

    def contents(self) -> tuple[list[list[float]] | None, list[list[float]] | None]:
        """K and V of this layer by token, as far as the trace holds them."""
        mine = (v for v in self.trace.values or [] if v.layer == self.layer)
        found = next(mine, None)
        return (found.k, found.v) if found else (None, None)

    @property
    def title(self) -> str:
        """The pass by its name: "Decode 1, no cache"."""
        if self.event.phase != "decode":
            return self.event.phase.capitalize()
        number = sum(one.phase == "decode" for one in self.passes)
        return f"Decode {number}, {'with the cache' if self.keeps else 'no cache'}"

    @property
    def rows_note(self) -> str:
        """What happens to rows of K and V, in the words of the stepper."""
        notes, part = VIEW["notes"], self.part
        if self.state is not None:
            return str(notes["state" if self.state else "nothing"])
        if not self.event.counts["kv_rows"]:
            return fill(notes["shared"], seen=len(self.there))
        read, written, again = (len(spread(rows)) for rows in (part.read, part.written, part.repeated))
        if not self.keeps:
            return fill(notes["again" if again else "made"], made=len(self.queries), again=again)
        return fill(notes["read" if read else "written"], read=read, written=written)

    def outcome(self, shares: bool = False) -> str:
        """The words that come out, the last with its share; in training the targets."""
        words = ", ".join(visible(self.tokens[token].text) for token in self.gives.values())
        if self.part.target is not None or not self.part.out:
            return words
        out = self.part.out[-1]
        message = [percent(p) for text, _, p in out.top if text == self.tokens[out.chosen].text][:1]
        return words + (f" ({message[0]})" if message and shares else "")


def chosen(trace: Trace, start: int, lab: bool) -> list[tuple[Run, int]]:
    """The passes that stand for a run: prefill, a step with the cache and, in the story, the same without it.

    Before them the training reference, in the lab, or where the stepper starts there.
    """
    main = next((run for run in trace.runs if run.cache != "none"), trace.runs[0])
    phases = [event.phase for event in main.passes]
    training = phases[0] == "training" and (lab or start == 0)
    shown = [*range(training), phases.index("prefill")]
    if "decode" not in phases:
        return [(main, n) for n in shown]
    step = phases.index("decode")
    plain = [run for run in trace.runs if run.cache == "none" and run is not main and not lab]
    return [(main, n) for n in [*shown, step]] + [(run, step) for run in plain]
