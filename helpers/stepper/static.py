"""The static form: plain tables whose symbols and words carry the meaning, for readers who never click.

GitHub strips every style, an untrusted JupyterLab strips style sheets and SVG; what is left must do.
"""

from __future__ import annotations

import html
import math
import unicodedata
from collections.abc import Callable, Iterable

from helpers.trace import Output, Part, Pass, Run, Token, Trace, Values, spread, weight_key

COLUMNS = 14  # more tokens than this: the first and the last few
ENDS = 6
DIGITS_UP_TO = 8  # attention weights up to so many tokens,
HEADS_UP_TO = 4  # and so many heads
TERMS = 2  # a sum of more products is not written out
LONG = 20  # characters of a token's text

# Literal colours, ground and ink together, so that a cell reads the same in a light and in a dark theme.
_STYLES = {
    "now": "background-color:#cfe6f5;color:#1b1f24;text-align:center",
    "again": "background-color:#e4eef4;color:#1b1f24;text-align:center;font-weight:bold",
    "k": "background-color:#fbe3c0;color:#1b1f24;text-align:center",
    "v": "background-color:#c9ebe0;color:#1b1f24;text-align:center",
    "": "text-align:center",
    "left": "text-align:left",
    "right": "text-align:right",
}


def visible(text: str) -> str:
    """A token's text; one that would leave no mark on the page is named by its code points."""
    if not text:
        return "(empty)"
    if all(unicodedata.category(c)[0] in "ZC" for c in text):
        return " ".join(f"U+{ord(c):04X}" for c in text)
    return text


def _word(text: str) -> str:
    whole = visible(text)
    cut = whole if len(whole) <= LONG else whole[: LONG - 1] + "…"
    title = f' title="{html.escape(whole)}"' if cut != whole else ""
    return f"<bdi{title}>{html.escape(cut)}</bdi>"


def _number(x: float) -> str:
    rounded = math.copysign(math.floor(100 * abs(x) + 0.5001) / 100, x)  # 9.1249999 is 9.125 with noise
    text = f"{rounded:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text.replace("-", "−")


def _count(n: int, one: str) -> str:
    return f"{n:,} {one}" if n == 1 else f"{n:,} {one}s"


def _counts(weight: float, seen: int) -> bool:
    """Whether a weight counts: a twentieth of an equal share at least. The rest is as good as none."""
    return weight * seen >= 0.05


def _weight(weight: float, seen: int) -> str:
    return _number(weight) if _counts(weight, seen) else "·"


def _key(numbers: list[float], toy: bool) -> str:
    """A row of K; the toy's are [is the position even, position]."""
    if toy:
        return f"{'yes' if numbers[0] else 'no'} · {_number(numbers[1])}"
    return " · ".join(map(_number, numbers))


class _Table:
    """One pass of one run as a table."""

    def __init__(self, trace: Trace, run: Run, index: int, panels: set[str], layer: int) -> None:
        self.trace, self.run, self.index, self.panels, self.layer = trace, run, index, panels, layer
        event = run.events[index]
        assert isinstance(event, Pass)
        self.event: Pass = event
        self.part: Part = event.parts[0]
        self.tokens = trace.sequences[self.part.sequence].tokens
        self.queries = self.part.queries
        self.width = max(spread(self.part.read) + self.queries) + 1
        self.visible = dict(zip(self.queries, map(spread, self.part.visible), strict=True))

    def shown(self) -> list[int | None]:
        """Columns, and rows, that are drawn; None stands for those left out."""
        every: list[int | None] = list(range(self.width))
        return every if self.width <= COLUMNS else [*every[:ENDS], None, *every[-ENDS:]]

    def times(self, query: int, key: int) -> int:
        """How often the pair has been scored up to this pass, training aside."""
        return sum(key in visible.get(query, ()) for visible in self._passes_so_far())

    def _passes_so_far(self) -> Iterable[dict[int, set[int]]]:
        for event in self.run.events[: self.index + 1]:
            if isinstance(event, Pass) and event.phase != "training":
                part = event.parts[0]
                yield {q: set(spread(r)) for q, r in zip(part.queries, part.visible, strict=True)}

    def cell(self, query: int, key: int) -> tuple[str, str]:
        """Symbol and style of one cell."""
        if query not in self.visible:
            return ("○", "") if self.times(query, key) else ("", "")
        if key not in self.visible[query]:
            return "×", ""
        times = self.times(query, key)
        return (str(times), "again") if times > 1 else ("●", "now")

    def row(self, query: int) -> str:
        cells = [_cell("…") if key is None else _cell(*self.cell(query, key)) for key in self.shown()]
        return _row(_word(self.tokens[query].text), cells, self.aside(query))

    def aside(self, query: int) -> str:
        """What stands right of a row: its target, its contexts, or whose work it is."""
        if self.part.target is not None:
            return f"→ {_word(self.tokens[self.part.target[self.queries.index(query)]].text)}"
        if query not in self.visible:
            return f"{_pass_name(self.run, self._last_pass(query)).lower()}'s, untouched"
        if "contexts" not in self.panels:
            return "runs again" if query in spread(self.part.repeated) else "runs in this pass"
        return ", ".join(_number(c) for c in self._contexts(query))

    def _last_pass(self, query: int) -> int:
        ran = [
            i
            for i, e in enumerate(self.run.events[: self.index])
            if isinstance(e, Pass) and query in e.parts[0].queries
        ]
        return ran[-1]

    def _contexts(self, query: int) -> list[float]:
        for event in self.run.passes:
            new = spread(event.parts[0].new)
            if event.parts[0].contexts and query in new:
                rows = [event.parts[0].contexts[f"{self.layer}.{head}"] for head in self.heads()]
                return [row[new.index(query)][0] for row in rows if len(row[new.index(query)]) == 1]
        return []

    def heads(self) -> list[int]:
        return [head for layer, head in self.trace.recorded if layer == self.layer]

    def names(self) -> list[str]:
        """The heads' names."""
        given = self.trace.model.head_names or [f"head {n + 1}" for n in range(self.trace.model.n_heads)]
        return [html.escape(name) for name in given]

    def head(self) -> str:
        aside = ""
        if self.part.target is not None:
            aside = "target"
        elif "contexts" in self.panels and any(
            part.contexts for part in (e.parts[0] for e in self.run.passes)
        ):
            aside = "contexts: " + ", ".join(self.names()[head] for head in self.heads())
        cells = [_cell("…") if key is None else _cell(self._column(key)) for key in self.shown()]
        return _row("looks at →", cells, aside)

    def _column(self, key: int) -> str:
        return f"{_word(self.tokens[key].text)}<br>{self.tokens[key].position}"

    def row_word(self, token: int) -> str:
        """What happens to a token's row of K and V."""
        if token in spread(self.part.written):
            return "written"
        if token in spread(self.part.read):
            return "read"
        return "dropped" if token in self.visible else ""

    def band(self, name: str, style: str, text: Callable[[int], str], aside: str = "") -> str:
        cells = [_cell("…") if key is None else _cell(text(key), style) for key in self.shown()]
        return _row(name, cells, aside)

    def bands(self) -> list[str]:
        kept = self.kept()
        bands = []
        if kept and "keys" in self.panels and kept.k is not None:
            keys = kept.k
            toy = self.trace.model.name == "toy"
            bands.append(self.band("K", "k", lambda j: _key(keys[j], toy), "even? · position" if toy else ""))
        bands += self.weights()
        if kept and "values" in self.panels and all(len(v) == 1 for v in kept.v):
            numbers = kept.v
            bands.append(self.band("V", "v", lambda j: _number(numbers[j][0])))
        return [*bands, self.band("rows of K, V", "v", self.row_word, self._rows_said())]

    def weights(self) -> list[str]:
        """How much the last token of the pass looks at each it sees: a line for each head, and its sum."""
        heads, query = self.heads(), self.queries[-1]
        if "weights" not in self.panels or len(heads) > HEADS_UP_TO or self.width > DIGITS_UP_TO:
            return []
        seen = self.visible[query]
        lines = []
        for head in heads:
            if weight_key(self.part.sequence, query, self.layer, head) not in self.trace.weights:
                continue  # a trace need not hold every row's
            found = self.trace.attention_weights(query, self.layer, head, self.part.sequence)
            text = dict.fromkeys(range(self.width), "")
            text |= {key: _weight(w, len(seen)) for key, w in zip(seen, found, strict=True)}
            lines.append(self.band(self.names()[head], "", text.__getitem__, self.sum(head, found)))
        whose = _cell(f"of {_word(self.tokens[query].text)}, a line for each head", "left", self.width)
        return [_row("attention weights", [whose], ""), *lines] if lines else []

    def sum(self, head: int, weights: Iterable[float]) -> str:
        """A context as the weights and V give it: "0.5 × 20 + 0.5 × 5 = 12.5"."""
        query = self.queries[-1]
        kept, contexts = self.kept(), self._contexts(query)
        if kept is None or not contexts or not {"values", "contexts"} <= self.panels:
            return ""
        seen = self.visible[query]
        values = [kept.v[key][0] for key in seen]
        terms = [(w, v) for w, v in zip(weights, values, strict=True) if _counts(w, len(seen))]
        context = _number(contexts[self.heads().index(head)])
        if len(terms) > TERMS:
            even = all(abs(w - 1 / len(terms)) < 1e-4 for w, _ in terms)
            name = f"average of {len(terms)}" if even else f"sum of {len(terms)} products"
            return f"{name} = {context}"
        products = " + ".join(f"{_number(w)} × {_number(v)}" for w, v in terms)
        return f"{products or 'nothing to pick'} = {context}"

    def kept(self) -> Values | None:
        """What this layer keeps of the sequence, where the trace holds it."""
        where = (self.part.sequence, self.layer)
        return next((v for v in self.trace.values or [] if (v.sequence, v.layer) == where), None)

    def _rows_said(self) -> str:
        if self.run.cache == "none" or self.event.phase == "training":
            return f"{_count(self.event.counts['kv_rows'], 'row')} made, used, dropped"
        return f"{_count(self.part.kept[1], 'row')} in the cache"

    def caption(self) -> str:
        """The pass in a line of words and numbers."""
        name = _pass_name(self.run, self.index)
        cache = "no" if self.run.cache == "none" else "with the"
        how = {"prefill": "", "training": ", for reference"}.get(self.event.phase, f", {cache} cache")
        counts = self.event.counts
        verb = "runs" if counts["positions"] == 1 else "run together"
        runs = f"{_count(counts['positions'], 'token')} {verb}"
        again = len(spread(self.part.repeated))
        said = [runs + (f", {again} of them again" if again else ""), _count(counts["pairs"], "pair")]
        if self.run.cache != "none" and self.event.phase != "training":
            read = f"{counts['rows_read']} read, " if counts["rows_read"] else ""
            said.append(f"rows: {read}{counts['kv_rows']} written")
        return f"<p><b>{name}{how}.</b> {'; '.join(said)}.{self._outcome()}</p>"

    def _outcome(self) -> str:
        if self.part.target is not None:
            return " Every row has a target, the token that comes next."
        if not self.part.out:
            return ""
        out: Output = self.part.out[-1]
        word = self.tokens[out.chosen].text
        p = next((p for text, _, p in out.top if text == word), None)
        said = [f"{100 * p:.1f}%"] if p is not None else []
        said += [html.escape(out.how)] if out.how != "greedy" else []
        aside = f" ({'; '.join(said)})" if said and "prediction" in self.panels else ""
        return f" Next word: <b>{_word(word)}</b>{aside}."

    def render(self) -> str:
        rows = [
            _row("…", [_cell("…") for _ in self.shown()], "") if q is None else self.row(q)
            for q in self.shown()
        ]
        return self.caption() + "<table>" + "".join([self.head(), *rows, *self.bands()]) + "</table>"


def _cell(text: str, style: str = "", columns: int = 1) -> str:
    span = f' colspan="{columns}"' if columns > 1 else ""
    return f'<td{span} style="{_STYLES[style]}">{text}</td>'


def _row(name: str, cells: list[str], aside: str) -> str:
    return "".join([f'<tr><th style="{_STYLES["right"]}">{name}</th>', *cells, _cell(aside, "left"), "</tr>"])


def _of_phase(run: Run, phase: str) -> list[int]:
    return [i for i, e in enumerate(run.events) if isinstance(e, Pass) and e.phase == phase]


def _pass_name(run: Run, index: int) -> str:
    event = run.events[index]
    assert isinstance(event, Pass)
    same = _of_phase(run, event.phase)
    name = event.phase.capitalize()
    return f"{name} {same.index(index) + 1}" if event.phase == "decode" or len(same) > 1 else name


def _same_pass(run: Run, index: int, other: Run) -> int | None:
    """Where the other run has the same pass: events between the passes need not be the same in both."""
    event = run.events[index]
    assert isinstance(event, Pass)
    number = _of_phase(run, event.phase).index(index)
    return dict(enumerate(_of_phase(other, event.phase))).get(number)


def _steps(run: Run) -> list[int]:
    return [i for i, e in enumerate(run.events) if isinstance(e, Pass) and e.phase != "training"]


def _chosen(run: Run) -> list[int]:
    """Prefill, the first decode step and the last; beside them the events that are no passes."""
    steps = _steps(run)
    shown = {*steps[:2], *steps[-1:]}
    between = [i for i, event in enumerate(run.events) if not isinstance(event, Pass)]
    beside = [
        i for i in between if shown & {*[s for s in steps if s < i][-1:], *[s for s in steps if s > i][:1]}
    ]
    return sorted([*shown, *beside])


def _left_out(run: Run, chosen: list[int]) -> str:
    steps = _steps(run)
    missing = len(set(steps) - set(chosen))
    return (
        f"<p>{len(steps)} passes in all; {missing} between the first and the last are not shown here.</p>"
        if missing
        else ""
    )


def _comparison(cached: Pass, plain: Pass, tokens: list[Token]) -> str:
    """What the cache saves in this pass, from the counts of both runs."""
    same = [tokens[o.chosen].text for o in cached.parts[0].out] == [
        tokens[o.chosen].text for o in plain.parts[0].out
    ]
    done = [f"{cached.counts[name]:,} of {plain.counts[name]:,} {name}" for name in ("positions", "pairs")]
    avoided = [f"{plain.counts[name] - cached.counts[name]:,}" for name in ("positions", "pairs")]
    words = "the word is the same" if same else "the words differ"
    saved = f"it avoids {avoided[0]} and {avoided[1]}, and {words}"
    return f"<p>The cache runs {done[0]} and scores {done[1]}; {saved}.</p>"


_LEGEND = "<p>● scored in this pass, ○ in an earlier one, × masked, not counted{again}</p>"


def _event(trace: Trace, run: Run, index: int, panels: set[str], layer: int) -> str:
    """A pass as its table, anything else as its sentence."""
    event = run.events[index]
    if isinstance(event, Pass):
        return _Table(trace, run, index, panels, layer).render()
    return f"<p>{html.escape(event.say)}</p>"


def render(trace: Trace, panels: set[str], layer: int = 0, start: int | None = None) -> str:
    """Return the static form: prefill, decode with the cache, the same step without it.

    A stepper that starts at the training reference shows that first.
    """
    cached = [run for run in trace.runs if run.cache != "none"][:1]
    plain = [run for run in trace.runs if run.cache == "none"][:1]
    main = (cached or plain)[0]
    chosen = _chosen(main)
    said = [_event(trace, main, index, panels, layer) for index in chosen]
    first = trace.runs[0]
    if start is not None and start in _of_phase(first, "training"):
        said.insert(0, _event(trace, first, start, panels, layer))
    decodes = [i for i in _of_phase(main, "decode") if i in chosen]
    both = [(i, j) for i in decodes if plain and (j := _same_pass(main, i, plain[0])) is not None]
    if cached and both:
        table, without = (
            _Table(trace, run, index, panels, layer)
            for run, index in zip((main, plain[0]), both[-1], strict=True)
        )
        said += [without.render(), _comparison(table.event, without.event, table.tokens)]
    again = ", 2, 3, … scored for the 2nd, 3rd, … time" if both else ""
    return "".join([*said, _LEGEND.format(again=again), _left_out(main, chosen)])
