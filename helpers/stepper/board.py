"""Passes as pictures, as the live board shows them, for readers where nothing runs."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from math import ceil

from helpers.drawing.canvas import Sheet
from helpers.drawing.still import Still
from helpers.drawing.tables import Table
from helpers.drawing.words import SMALL as SIZE
from helpers.drawing.words import drawable, shorten, text_width
from helpers.stepper.format import VIEW, fill, key_text, number, visible
from helpers.stepper.moment import Moment
from helpers.trace import spread

HEAD, LINE, ROW = 24, 20, 20  # heights of a word over its column, a line of the grid, a row of K or V
LEAST, NAMES, ASIDE = 32, 84, 96  # widths: of a column at least, of words at the left and the right at most
LATEST = 4  # lines of a long text that a step with the cache shows
CONTEXT = "context"


def _wide(text: str, bold: bool = False) -> int:
    """How wide a text comes out: whole pixels, so that marks repeat and the file is small."""
    return ceil(text_width(drawable(text), SIZE, bold=bold))


class Board:
    """One pass: words over their columns, who looks at whom, attention weights, and rows of K and V."""

    def __init__(self, moment: Moment, lab: bool, with_weights: bool) -> None:
        self.moment, self.lab, self.query = moment, lab, moment.queries[-1]
        self.words = {token: visible(moment.tokens[token].text) for token in moment.columns}
        self.heads = self._heads() if with_weights else {}
        self.k, self.v = moment.contents()
        names = [*self.words.values(), *self.heads, VIEW["labels"]["looks"]]
        self.names = min(NAMES, max(map(_wide, names))) + 8
        given = [_wide(visible(moment.tokens[token].text), bold=True) for token in moment.gives.values()]
        asides = [
            _wide(output) + 10
            for _, context in self.heads.values()
            if context
            for output in (context, CONTEXT)
        ]
        self.aside = max([min(ASIDE, one) + 28 for one in given] + asides, default=0)
        self.natural = {
            token: max(LEAST, _wide(word) + 10, *(_wide(text) + 8 for text in self.contents(token)))
            for token, word in self.words.items()
        }

    def _heads(self) -> dict[str, tuple[dict[int, float], str]]:
        """The last line's weights and context by head: of each of a few, or of those in the grid together."""
        moment = self.moment
        few = len(moment.heads) <= VIEW["heads_at_once"]
        lines = {}
        for heads in [[head] for head in moment.heads] if few else [moment.shown]:
            found = moment.context(self.query, heads[0]) if len(heads) == 1 else None
            context = f"= {number(found)}" if found is not None else ""
            lines[moment.head_name(heads)] = moment.weights(self.query, heads), context
        return {name: line for name, line in lines.items() if line[0]}

    def contents(self, token: int) -> tuple[str, str]:
        """What stands in a token's rows of K and V."""
        if not self.moment.row(token):
            return "", ""
        k = key_text(self.k[token]) if self.k and self.lab else ""
        return k, number(self.v[token][0]) if self.v else ""

    def draw(self, sheet: Sheet, x: float, y: float, width: float) -> None:
        """Draw it, (x, y) its top left corner."""
        room, most = width - self.names - self.aside, max(self.natural.values())
        spare = int(min(12, (room - sum(self.natural.values())) // len(self.words)))
        wide = [one + max(0, spare) for one in self.natural.values()]
        while sum(wide) > room and most > LEAST - 4:
            most -= 1
            wide = [min(one, most) for one in wide]
        ends = [*accumulate(wide, initial=x + self.names)]
        self.sheet, self.left, self.right = sheet, ends[0], ends[-1]
        self.place = dict(zip(self.words, zip(ends, wide, strict=False), strict=True))
        y = self._title(x, y)
        y = self._grid(y)
        y = self._weights(y + 6) if self.heads else y
        self._drawer(y + 14)

    def _note(
        self, x: float, y: float, text: str, at: str = "left", colour: str = "soft", bold: bool = False
    ) -> None:
        self.sheet.text(x, y, text, at=at, size=SIZE, colour=colour, bold=bold)

    def _title(self, x: float, y: float) -> float:
        """Name the pass and its work; put each word over its column, outlined if it runs."""
        self.sheet.text(x, y + 9, self.moment.title, bold=True)
        sentence = fill("{positions|token} processed, {pairs|pair}", **self.moment.event.counts)
        left_out = self.moment.columns[0] > 0
        self._note(x, y + 28, sentence + (f"; the last {len(self.words)} columns" if left_out else ""))
        self._note(self.left - 8, y + 54, VIEW["labels"]["looks"], at="right")
        y += 42
        for token, (x, wide) in self.place.items():
            colour = "ink" if self.moment.tokens[token].origin == "prompt" else "generated"
            face, edge = ("panel", "query") if token in self.moment.visible else ("none", "line")
            self.sheet.box(x + 1, y, wide - 3, HEAD, fill=face, edge=edge, line=1.4)
            word = shorten(self.words[token], wide - 6, SIZE)
            self._note(x + wide / 2 - 0.5, y + HEAD / 2, word, at="center", colour=colour)
        return y + HEAD + 4

    def _grid(self, y: float) -> float:
        """Who looks at whom, a line for each token that looks; return where it ends."""
        moment = self.moment
        lines = [q for q in self.words if any(moment.mark(q, key) for key in self.words)]
        if moment.columns[0] > 0 and len(moment.queries) < LATEST:
            lines = lines[-LATEST:]
        for query in lines:
            live = query in moment.visible
            name = shorten(self.words[query], self.names - 8, SIZE)
            colour = "query" if live else "soft"
            self._note(self.left - 8, y + LINE / 2, name, "right", colour, live and query == self.query)
            weights = moment.weights(query, moment.shown)
            for key, (x, wide) in self.place.items():
                _pair(self.sheet, moment.mark(query, key), weights.get(key, 0), x + 1, y + 1, wide - 3)
            if query in moment.gives:
                self._gives(moment.gives[query], y + LINE / 2)
            y += LINE
        return y

    def _gives(self, token: int, y: float) -> None:
        """The word that a line gives, or in training its target."""
        target = self.moment.part.target is not None
        colour, x = "soft" if target else "generated", self.right + 16
        self.sheet.arrow(self.right + 1, y, x - 1, y, colour, 1.2)
        word = shorten(visible(self.moment.tokens[token].text), self.aside - 27, SIZE, bold=not target)
        if not target:
            wide = _wide(word, bold=True) + 10
            self.sheet.box(x + 1, y - 9, wide, 18, fill="generated fill", edge="generated", line=1)
        self._note(x + 6, y, word, colour=colour, bold=not target)

    def _weights(self, y: float) -> float:
        """How much the last line looks at each token; return where it ends."""
        self._note(self.left + 1, y + 8, f"attention weights of {shorten(self.words[self.query], 120, SIZE)}")
        if any(context for _, context in self.heads.values()):
            self._note(self.right + 8, y + 8, CONTEXT)
        for name, (found, context) in self.heads.items():
            y += 17
            self._note(self.left - 8, y + 9, shorten(name, self.names - 8, SIZE), at="right", colour="ink")
            self._note(self.right + 8, y + 9, context, colour="ink")
            for token in self.words.keys() & found.keys():
                x, wide = self.place[token]
                counts = found[token] * len(found) >= VIEW["picked"]
                text, colour = (number(found[token]), "query") if counts else ("·", "soft")
                self._note(x + wide / 2, y + 9, text, at="center", colour=colour)
        return y + 20

    def _drawer(self, y: float) -> None:
        """K above V in the drawer that keeps them, or that is emptied after the pass."""
        moment, name = self.moment, self.moment.drawer
        label = _wide(name, bold=True)
        wide = max(self.right - self.left + 6, label + 28)
        edge = "ink" if moment.keeps else "soft"
        self.sheet.box(
            self.left - 5, y, wide, 2 * ROW + 20, edge=edge, line=1.2, radius=6, dashed=not moment.keeps
        )
        self.sheet.box(self.left + 6, y - 7, label + 8, 14, fill="paper", radius=0)
        self._note(self.left + 10, y, name, bold=True)
        rows = (("K", "key"), ("V", "value")) if moment.state is None else ()
        if moment.state is not None:
            self.sheet.box(
                self.left + 1, y + 10, self.right - self.left - 3, 2 * ROW + 3, fill="panel", edge="ink"
            )
            text = shorten(moment.state_text, self.right - self.left - 12, SIZE)
            self._note((self.left + self.right) / 2, y + 11.5 + ROW, text, at="center", colour="ink")
        for n, (kind, colour) in enumerate(rows):
            top = y + 10 + n * (ROW + 3)
            self._note(self.left - 12, top + ROW / 2, kind, "right", colour, bold=True)
            for token, (x, wide) in self.place.items():
                _row(self.sheet, moment.row(token), colour, x + 1, top, wide - 3)
                text = shorten(self.contents(token)[n], wide - 4, SIZE)
                self._note(x + wide / 2 - 0.5, top + ROW / 2, text, at="center", colour="ink")
        self._note(self.left - 3, y + 2 * ROW + 32, moment.rows_note)


def _pair(sheet: Sheet, mark: str, weight: float, x: float, y: float, wide: float) -> None:
    """What a pair is, and its attention weight as the area of a square."""
    middle, half, high = x + wide / 2, y + LINE / 2 - 1, LINE - 2
    side = round(high * weight**0.5)
    if mark == "now":
        sheet.box(x, y, wide, high, fill="query fill", radius=3)
    if mark == "masked":
        sheet.box(x, y, wide, high, edge="line", radius=3, line=0.8)
        sheet.text(middle, half, VIEW["marks"]["masked"], at="center", size=SIZE, colour="soft")
    elif mark.isdigit():
        sheet.box(x, y, wide, high, fill="panel", edge="query", radius=3)
        sheet.text(middle, half, mark, at="center", size=SIZE, colour="query", bold=True)
    elif mark:
        sheet.square(middle, half, side, "query" if mark == "now" else "query fill")


def _row(sheet: Sheet, state: str, colour: str, x: float, y: float, wide: float) -> None:
    """A row of K or V: filled if it is kept, a heavy edge if it is written now, dashed if it is not kept."""
    face = f"{colour} fill" if state in ("written", "read") else "none"
    if state == "evicted":
        sheet.line((x, y + ROW / 2), (x + wide, y + ROW / 2), colour="line", width=1.4)
    elif state:
        line = 2.2 if state == "written" else 1.0
        sheet.box(x, y, wide, ROW, fill=face, edge=colour, line=line, dashed=state == "made")


def draw_boards(sheet: Sheet, boards: list[Board]) -> None:
    """Draw passes one under the other, and what the signs mean."""
    y = 8.0
    for board in boards:
        board.draw(sheet, 4.0, y, sheet.width - 8)
        y = ceil(sheet.bottom) + 26.0
    _legend(sheet, boards, y)


def _legend(sheet: Sheet, boards: list[Board], y: float) -> None:
    """Say what the signs mean, those that occur."""
    moments = [board.moment for board in boards]
    pairs = {moment.mark(q, key) for moment in moments for q in moment.columns for key in moment.columns}
    kinds = {"again" if pair.isdigit() else pair for pair in pairs}
    rows = {moment.row(token) for moment in moments for token in moment.columns}
    named = [(kind, sentence) for kind, sentence in VIEW["legend"].items() if kind in kinds]
    named += [(state, f"row {sentence}") for state, sentence in VIEW["rows"].items() if state in rows]
    x = 4.0
    for kind, sentence in [*named, ("", VIEW["labels"]["area"])]:
        wide = _wide(sentence) + (44 if kind else 12)
        if x + wide > sheet.width:
            x, y = 4.0, y + 24
        if kind in rows:
            _row(sheet, kind, "value", x, y, 22)
        else:
            _pair(sheet, "2" if kind == "again" else kind, 0.5, x, y + 1, 22)
        sheet.text(x + (28 if kind else 0), y + 10, sentence, size=SIZE, colour="soft")
        x += wide


def still(moments: list[Moment], lab: bool) -> Still:
    """Return pictures of passes, their numbers in a table, sentences, and the weights of one in words."""
    first = next((n for n, moment in enumerate(moments) if moment.part.target is None), 0)
    boards = [Board(moment, lab, n == first) for n, moment in enumerate(moments)]
    alt = " ".join(map(_in_words, boards))
    counts, parts = [moment.event.counts for moment in moments], [moment.part for moment in moments]
    lines = {
        "tokens processed": [count["positions"] for count in counts],
        "pairs": [count["pairs"] for count in counts],
        "rows read": [len(spread(part.read)) for part in parts],
        "rows kept": [part.kept[1] for part in parts],
        "next word": [moment.outcome(shares=True) for moment in moments],
    }
    hows = dict.fromkeys(out.how for part in parts for out in part.out if out.how != "greedy")
    said = f"Chosen: {'; '.join(hows)}. The percentages are those before these settings."
    table = Table([*lines.values()], [*lines], [moment.title for moment in moments])
    return Still(partial(draw_boards, boards=boards), alt, [said] if hows else [], table=table)


def _in_words(board: Board) -> str:
    """A pass in sentences: what comes out, what happens to rows, and whom the last line looks at."""
    moment = board.moment
    what = "the targets are" if moment.part.target else "next word:"
    given = f"; {what} {moment.outcome()}" if moment.gives else ""
    sentence = [f"{moment.title}: {moment.rows_note}{given}."]
    for name, (found, _) in board.heads.items():  # those with an equal share at least
        picked = {token: weight for token, weight in found.items() if weight * len(found) > 0.99}
        looks = [f"{visible(moment.tokens[token].text)} {number(weight)}" for token, weight in picked.items()]
        sentence.append(f"{name}: {board.words[board.query]} looks at {', '.join(looks) or 'nothing'}.")
    return " ".join(sentence)
