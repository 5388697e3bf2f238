"""The static form, for readers who never click: two passes as pictures and, folded below, more as tables.

GitHub strips every style, an untrusted JupyterLab strips style sheets and SVG; what is left must do. So a
picture is a table too, and symbols and words carry the meaning of both.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeGuard

from helpers.stepper.format import VIEW, clipped, fill, number, percent, visible
from helpers.trace import Drop, Other, Part, Pass, Run, Trace, Values, spread, weight_key

COLUMNS = 14  # more tokens than this: the first and the last few
ENDS = 6
LAST = 12  # a picture's columns, counted from the end
LONG, SHORT = 20, 9  # characters of a token's text: in a table, in a picture

LABELS, MARKS, ROWS, SAY = VIEW["labels"], VIEW["marks"], VIEW["rows"], VIEW["tables"]
_COLOURS = VIEW["palette"]["light"]


def _filled(ground: str, ink: str = "ink") -> str:
    """Ground and ink together, literally, so that a cell reads the same in a light and in a dark theme."""
    return f"background-color:{_COLOURS[ground]};color:{_COLOURS[ink]};text-align:center"


# One meaning a colour: scored now, scored again, a row of K that is kept, one of V, a token that came out.
_STYLES = {
    "now": _filled("qf"),
    "again": _filled("panel", "q") + ";font-weight:bold",
    "k": _filled("kf"),
    "v": _filled("vf"),
    "gen": _filled("gf", "gen"),
    "": "text-align:center",
    "box": "padding:1px 2px;text-align:center",
    "left": "text-align:left",
    "right": "text-align:right",
}
_KEPT = ("written", "read", "rest")  # states of a row that lies in the cache after the pass


def _word(text: str, most: int = LONG) -> str:
    whole, cut = visible(text), clipped(text, most)
    title = f' title="{html.escape(whole)}"' if cut != whole else ""
    return f"<bdi{title}>{html.escape(cut)}</bdi>"


def _holds(ranges: Iterable[tuple[int, int]], token: int) -> bool:
    return any(start <= token < stop for start, stop in ranges)


def _counts(weight: float, seen: int) -> bool:
    """Whether a weight counts: a twentieth of an equal share at least. The rest is as good as none."""
    return weight * seen >= float(VIEW["picked"])


class _Table:
    """One pass of one run as a table."""

    def __init__(self, trace: Trace, run: Run, index: int, panels: set[str], layer: int) -> None:
        event = run.events[index]
        assert isinstance(event, Pass)
        self.trace, self.run, self.event, self.panels, self.layer = trace, run, event, panels, layer
        self.index, self.names = index, _names(run)
        self.part = _part(event)
        self.tokens = trace.sequences[0].tokens
        self.queries = self.part.queries
        given = {out.chosen for out in self.part.out}
        self.drafts = [t for t in spread(self.part.new) if self.tokens[t].origin == "draft"]
        self.refused = {draft for draft in self.drafts if draft not in given}
        self.visible = dict(zip(self.queries, self.part.visible, strict=True))
        self.there = [*self.part.read, *self.part.written, *self.part.new, *self.part.repeated]
        self.width = max(stop for _, stop in self.there)
        self.shown = self.columns([*range(self.width)])
        self.keeps = run.cache != "none" and event.phase != "training"
        self.heads = [head for recorded, head in trace.recorded if recorded == layer]
        values = trace.values or []
        mine = (v for v in values if (v.sequence, v.layer) == (0, layer))
        self.values: Values | None = next(mine, None)
        self._look_back()

    def columns(self, every: list[int]) -> list[int | None]:
        """The tokens that are shown; None stands for those left out."""
        return [*every] if len(every) <= COLUMNS else [*every[:ENDS], None, *every[-ENDS:]]

    def _look_back(self) -> None:
        """How often each pair was scored, whose each row's work is, and what is stored, up to this pass."""
        self.times: Counter[tuple[int, int]] = Counter()
        self.ran: dict[int, int] = {}
        self.stored: set[int] = set()
        for index, event in enumerate(self.run.events[: self.index + 1]):
            if isinstance(event, Drop) and event.sequence == 0:
                self.stored -= set(spread(event.rows))
            if not _runs(event) or event.phase == "training":
                continue
            part = _part(event)
            self.stored |= set(spread(part.written))
            for query, ranges in zip(part.queries, part.visible, strict=True):
                if query in self.shown:
                    self.ran[query] = index
                    keys = (k for k in self.shown if k is not None and _holds(ranges, k))
                    self.times.update((query, key) for key in keys)

    def mark(self, query: int, key: int) -> tuple[str, str]:
        """What stands for a pair, and its style."""
        times = self.times[query, key]
        if query not in self.visible:
            return MARKS["earlier"] if times else "", ""
        if not _holds(self.visible[query], key):
            return MARKS["masked"] if _holds(self.there, key) else "", ""
        return (f"{times:,}", "again") if times > 1 else (MARKS["now"], "now")

    def row(self, query: int | None) -> str:
        if query is None:
            return self._line("…", lambda key: _cell("…"))
        name = _word(self.tokens[query].text)
        return self._line(name, lambda key: _cell(self.mark(query, key)[0]), self.aside(query))

    def _line(self, name: str, cell: Callable[[int], str], aside: str = "") -> str:
        return _row(name, [_cell("…") if key is None else cell(key) for key in self.shown], aside)

    def aside(self, query: int) -> str:
        """What stands right of a row: its target, its contexts, or whose work it is."""
        if self.part.target is not None:
            return f"→ {_word(self.tokens[self.part.target[self.queries.index(query)]].text)}"
        if query not in self.visible:
            last = self.ran.get(query)
            return "" if last is None else fill(LABELS["untouched"], **{"pass": self.names[last].lower()})
        if "contexts" not in self.panels:
            return SAY["this pass again" if _holds(self.part.repeated, query) else "this pass"]
        return ", ".join(map(number, self.contexts(query).values()))

    def contexts(self, query: int) -> dict[int, float]:
        """The context of each head, where it is one number; a repeated row's are looked up."""
        for part in map(_part, filter(_runs, self.run.events)):
            if part.contexts and _holds(part.new, query):
                at = spread(part.new).index(query)
                rows = {head: part.contexts.get(f"{self.layer}.{head}") for head in self.heads}
                return {head: row[at][0] for head, row in rows.items() if row and len(row[at]) == 1}
        return {}

    def name(self, head: int) -> str:
        names = self.trace.model.head_names
        return html.escape(names[head]) if names else fill(LABELS["head"], number=head + 1)

    def head(self) -> str:
        aside = ""
        if self.part.target is not None:
            aside = LABELS["target"]
        elif "contexts" in self.panels and any(map(self.contexts, self.queries)):
            aside = fill(SAY["contexts"], heads=", ".join(map(self.name, self.heads)))
        columns = [_cell(f"{_word(token.text)}<br>{token.position}") for token in self.tokens]
        return self._line(LABELS["looks"], columns.__getitem__, aside)

    def row_state(self, token: int) -> str:
        """What happens to a token's row of K and V: a key of `rows` in view.json, or nothing."""
        if _holds(self.part.written, token):
            return "written"
        if _holds(self.part.read, token):
            return "read"
        return "rest" if token in self.stored else "made" if token in self.visible else ""

    def band(self, name: str, text: Callable[[int], str], aside: str = "") -> str:
        """A line of K or V, empty where there is no row."""
        return self._line(name, lambda token: _cell(text(token) if self.row_state(token) else ""), aside)

    def bands(self) -> list[str]:
        keys = self.values.k if self.values and "keys" in self.panels else None
        values = self.values.v if self.values and "values" in self.panels else [[]]
        parts = VIEW["keys"].get(self.trace.model.name, [])
        bands = self.weights()
        if keys is not None:
            bands.insert(0, self.band("K", lambda j: key_text(keys[j], parts), " · ".join(parts)))
        if all(len(row) == 1 for row in values):
            bands.append(self.band("V", lambda j: number(values[j][0])))
        name = "kept" if self.keeps else "made"
        said = fill({**SAY, **VIEW["notes"]}[name], kept=self.part.kept[1], made=len(self.queries))
        return [*bands, self.band(SAY["bands"], lambda j: ROWS[self.row_state(j)], said)]

    def weights(self) -> list[str]:
        """How much the last token of the pass looks at each it sees: a line for each head, and its sum."""
        few = len(self.heads) <= VIEW["heads_at_once"] and self.width <= VIEW["digits_up_to"]
        query, lines = self.queries[-1], []
        seen = spread(self.visible[query])
        for head in self.heads if few and "weights" in self.panels else []:
            if weight_key(0, query, self.layer, head) not in self.trace.weights:
                continue  # a trace need not hold every row's
            found = self.trace.attention_weights(query, self.layer, head)
            looks = dict(zip(seen, map(float, found), strict=True))
            cells = [_cell("")] * self.width
            for key, w in looks.items():
                cells[key] = _cell(number(w) if _counts(w, len(seen)) else "·")
            lines.append(self._line(self.name(head), cells.__getitem__, self.sum(head, looks)))
        whose = _cell(fill(SAY["of"], word=_word(self.tokens[query].text)), "left", self.width)
        return [_row(LABELS["weights"], [whose], ""), *lines] if lines else []

    def sum(self, head: int, looks: dict[int, float]) -> str:
        """A context as the weights and V give it: "0.5 × 20 + 0.5 × 5 = 12.5"."""
        context = self.contexts(self.queries[-1]).get(head)
        if self.values is None or context is None or not {"values", "contexts"} <= self.panels:
            return ""
        terms = [(w, self.values.v[key][0]) for key, w in looks.items() if _counts(w, len(looks))]
        even = all(abs(w - 1 / len(terms)) < VIEW["even"] for w, _ in terms)
        if len(terms) >= VIEW["many_terms"]:
            said = fill(VIEW["sums"]["even" if even else "many"], terms=len(terms))
        else:
            said = " + ".join(f"{number(w)} × {number(v)}" for w, v in terms) or VIEW["sums"]["none"]
        return f"{said} = {number(context)}"

    def caption(self) -> str:
        """The pass in a line of words and numbers."""
        event, counts = self.event, self.event.counts
        again = len(spread(self.part.repeated))
        how = "with" if self.keeps else "without"
        return fill(
            SAY["caption"],
            name=self.names[self.index],
            cache={"prefill": "", "training": SAY["training"]}.get(event.phase, SAY[how]),
            runs=fill(SAY["runs one" if counts["positions"] == 1 else "runs"], **counts)
            + (fill(SAY["again"], again=again) if again else ""),
            pairs=counts["pairs"],
            rows=self.rows_note(),
            outcome=self.outcome(),
        )

    def rows_note(self) -> str:
        """What happens to rows of K and V in this pass, in the words of the stepper."""
        notes, part = VIEW["notes"], self.part
        read, written, again = (len(spread(rows)) for rows in (part.read, part.written, part.repeated))
        if not self.keeps:
            return fill(notes["again" if again else "made"], made=len(self.queries), again=again)
        rest = len(self.stored) - read - written
        said = fill(notes["read" if read else "written"], read=read, written=written)
        return said + (fill(notes["rest"], rest=rest) if rest > 0 else "")

    def outcome(self) -> str:
        if self.part.target is not None:
            return str(SAY["targets"])
        if not self.part.out:
            return ""
        out = self.part.out[-1]
        word = self.tokens[out.chosen].text
        taken = {"drafts": len(self.drafts), "accepted": len(self.drafts) - len(self.refused)}
        fates = f" {fill(VIEW['sentences']['fates'], **taken)}" if self.drafts else ""
        said = [percent(p) for text, _, p in out.top if text == word][:1]
        said += [html.escape(out.how), VIEW["labels"]["shares"]] if out.how != "greedy" else []
        aside = f" ({'; '.join(said)})" if said and "prediction" in self.panels else ""
        return fates + fill(SAY["next"], word=_word(word), aside=aside)

    def render(self) -> str:
        lines = [self.head(), *map(self.row, self.shown), *self.bands()]
        return f"{self.caption()}<table>{''.join(lines)}</table>"


class _Picture(_Table):
    """One pass of one run as boxes: who looks at whom, and under it K and V in the drawer that keeps them."""

    def columns(self, every: list[int]) -> list[int | None]:
        return [*every] if len(every) <= LAST else [None, *every[-LAST:]]

    def render(self) -> str:
        name = VIEW["drawer"]["keeps" if self.keeps else "training" if self.part.target else "drops"]
        left_out = fill(SAY["more"], more=self.width - LAST) if None in self.shown else ""
        lines = [
            self._line(
                left_out, lambda key: _cell(f'<div style="min-width:54px">{self.word(key)}</div>', "box")
            ),
            *(self.looks(query) for query in self.shown if query is not None),
            _row("", [_cell(f"<b>{name}</b>", "left", len(self.shown))], ""),
            self._line('<div style="line-height:21px">K<br>V</div>', self.drawer),
        ]
        plain = "".join(lines).replace("<tr>", '<tr style="background:transparent">')  # no stripes
        caption = f'<caption style="{_STYLES["left"]}">{self.caption()}</caption>'
        return f'<table cellspacing="0" style="{_PICTURE}">{caption}{plain}</table>'

    def word(self, token: int, tag: str = "div") -> str:
        word = _word(self.tokens[token].text, SHORT)
        word = f"<s>{word}</s>" if token in self.refused else word
        return word if self.tokens[token].origin == "prompt" else _box(word, "gen", "gen", tag=tag)

    def looks(self, query: int) -> str:
        """A line of the grid; on its right its target, or the token that it gives."""
        given = {out.query: out.chosen for out in self.part.out}
        given |= dict(zip(self.queries, self.part.target or [], strict=False))
        aside = f"→ {self.word(given[query], 'b')}" if query in given else ""
        return self._line(_word(self.tokens[query].text, SHORT), lambda key: self.pair(query, key), aside)

    def pair(self, query: int, key: int) -> str:
        mark, style = self.mark(query, key)
        if mark == MARKS["earlier"]:
            mark = _box(mark, "", "ring", "1px dotted")
        return _cell(_box(mark, style, "q") if style else mark, "box")

    def drawer(self, token: int) -> str:
        """A token's row of K above its row of V, and its part of the drawer."""
        state = self.row_state(token)
        edge = "1px dashed" if state == "made" else "1px solid"
        boxes = [
            _box(ROWS[state], line if state in _KEPT else "", line, edge, strong=state == "written")
            for line in (("k", "v") if state else ())
        ]
        sides = f"2px {2 * (token == self.width - 1)}px 2px {2 * (token == 0)}px"
        style = f"padding:3px 2px;border-style:{'solid' if self.keeps else 'dashed'};border-width:{sides}"
        return f'<td style="{style}">{"".join(boxes)}</td>'


_PICTURE = "display:inline-table;vertical-align:top;width:auto;margin:0 24px 12px 0;font-size:12px"


def _box(
    text: str, style: str, line: str, edge: str = "1px solid", strong: bool = False, tag: str = "div"
) -> str:
    """Text in a box; a strong edge takes no more room than a thin one."""
    border = f"{edge} {_COLOURS[line]}"
    outline = f"outline:{border};" if strong else ""
    look = f"{_STYLES[style]};border:{border};{outline}border-radius:4px;margin:1px 0 2px"
    return f'<{tag} style="{look}">{text}</{tag}>'


def key_text(numbers: list[float], parts: list[str]) -> str:
    """A row of K; a part whose name is a question is answered."""
    asked = [k < len(parts) and parts[k].endswith("?") for k in range(len(numbers))]
    texts = [("yes" if x else "no") if ask else number(x) for x, ask in zip(numbers, asked, strict=True)]
    return " · ".join(texts)


def _cell(text: str, style: str = "", columns: int = 1) -> str:
    span = f' colspan="{columns}"' if columns > 1 else ""
    return f'<td{span} style="{_STYLES[style]}">{text}</td>'


def _row(name: str, cells: list[str], aside: str) -> str:
    return "".join([f'<tr><th style="{_STYLES["right"]}">{name}</th>', *cells, _cell(aside, "left"), "</tr>"])


def _calls(run: Run) -> list[tuple[str, int]]:
    """What each event is called by in every run: its kind, and its number among those of its kind."""
    seen: Counter[str] = Counter()
    calls = []
    for event in run.events:
        kind = event.phase if isinstance(event, Pass) else event.op
        seen[kind] += 1
        calls.append((kind, seen[kind]))
    return calls


def _names(run: Run) -> list[str]:
    """Training, Prefill, Decode 1, Decode 2, …"""
    calls = _calls(run)
    numbered = {kind for kind, n in calls if kind == "decode" or n > 1}
    return [f"{kind.capitalize()} {n}" if kind in numbered else kind.capitalize() for kind, n in calls]


def _runs(event: Pass | Drop | Other) -> TypeGuard[Pass]:
    """Whether an event is a pass in which the first sequence runs: the one that is shown."""
    return isinstance(event, Pass) and any(part.sequence == 0 for part in event.parts)


def _part(event: Pass) -> Part:
    return next(part for part in event.parts if part.sequence == 0)


def _steps(run: Run) -> list[int]:
    return [i for i, e in enumerate(run.events) if _runs(e) and e.phase != "training"]


def _chosen(run: Run) -> list[int]:
    """Prefill, the first decode step and the last, and what stands beside them that is no pass."""
    steps = _steps(run)
    shown = {*steps[:2], *steps[-1:]}
    other = [i for i, event in enumerate(run.events) if not isinstance(event, Pass)]
    around = {i: {*[s for s in steps if s < i][-1:], *[s for s in steps if s > i][:1]} for i in other}
    return sorted(shown | {i for i in other if shown & around[i]})


def _comparison(cached: _Table, plain: _Table) -> str:
    """What the cache saves in this pass, from the counts of both runs."""
    words = [[table.tokens[out.chosen].text for out in table.part.out] for table in (cached, plain)]
    mine, other = cached.event.counts, plain.event.counts
    work = ("positions", "pairs")
    counts = {name: mine[name] for name in work} | {f"all_{name}": other[name] for name in work}
    counts |= {f"avoided_{name}": other[name] - mine[name] for name in work}
    return fill(SAY["saved"], same=SAY["same" if words[0] == words[1] else "differ"], **counts)


def render_event(trace: Trace, run: Run, index: int, panels: set[str], layer: int) -> str:
    """Return a pass as its table, anything else as its sentence."""
    event = run.events[index]
    if isinstance(event, Pass):
        return _Table(trace, run, index, panels, layer).render()
    return f"<p>{html.escape(event.say)}</p>"


def render(trace: Trace, panels: set[str], layer: int = 0, start: int | None = None) -> str:
    """Return the static form: prefill, decode with the cache, the same step without it.

    A stepper that starts at the training reference shows that first. The first two stand there as pictures.
    """
    cached = next((run for run in trace.runs if run.cache != "none"), None)
    plain = next((run for run in trace.runs if run.cache == "none"), None)
    main, first = cached or trace.runs[0], trace.runs[0]
    chosen = _chosen(main)
    shown, pictured = ([(main, index) for index in indices] for indices in (chosen, _steps(main)))
    if start is not None and isinstance(e := first.events[start], Pass) and e.phase == "training":
        shown.insert(0, (first, start))
        pictured.insert(0, (first, start))
    said = [render_event(trace, *event, panels, layer) for event in shown]
    pictures = [_Picture(trace, *event, panels, layer).render() for event in pictured[:2]]
    there = {call: index for index, call in enumerate(_calls(plain))} if plain else {}
    both = [i for i in chosen if (call := _calls(main)[i])[0] == "decode" and call in there]
    if cached and plain and both:
        table = _Table(trace, cached, both[-1], panels, layer)
        without = _Table(trace, plain, there[_calls(cached)[both[-1]]], panels, layer)
        said += [without.render(), _comparison(table, without)]
    said += [SAY["legend again"]] if both and plain else []
    missing = len(set(_steps(main)) - set(chosen))
    left_out = fill(SAY["left out"], passes=len(_steps(main)), missing=missing) if missing else ""
    first_of = fill(SAY["first of"], sequences=len(trace.sequences)) if len(trace.sequences) > 1 else ""
    legend = fill(SAY["legend"], marks=", ".join(f"{m} {VIEW['cells'][state]}" for state, m in MARKS.items()))
    folded = f"<details><summary>{SAY['folded']}</summary>{''.join(said)}{left_out}</details>"
    return f"{first_of}<div>{''.join(pictures)}</div>{legend}{folded}"
