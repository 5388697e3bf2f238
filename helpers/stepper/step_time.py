"""StepTime: the time of a step on a card, with the reader's settings; js/step_time.ts is its twin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.cost.config import model_of
from helpers.cost.layers import cache_nbytes, nbytes_of, users_that_fit
from helpers.cost.models import CARDS, MODELS, PublishedModel
from helpers.cost.step import ON_TOP, StepSeconds, concurrent_terms, step_time
from helpers.drawing.canvas import Sheet
from helpers.drawing.numbers import digits
from helpers.drawing.still import Still
from helpers.drawing.words import SMALL, need, text_width
from helpers.stepper.format import VIEW, fill, gib, unit
from helpers.stepper.machines import machines, model_line
from helpers.stepper.view import View, one_of

SAY: dict[str, Any] = VIEW["step_time"]
FILLS = {
    "weights": "query",
    "kv_cache": "key",
    "products": "ink",
    "attention": "soft",
    "collectives": "generated",
}

PLAIN = {  # of what a case has beside model, card, tokens and users
    **{"newTokens": 1, "cards": 1, "collective": 0, "weightBits": 16, "kvBits": 16, "overlap": False},
    **{"bandwidthReached": 100, "computeReached": 100},
}


class StepTime(View):
    """The time of a step on a card, by term, with its bound, its throughput, and how many users fit.

    The arguments are the initial settings; readers can change them.

    Args:
        model: an argument of `cost.model_of`: a name in `cost.models.MODELS`, or any config.json.
        card: a name in `cost.models.CARDS`.
        tokens: cached tokens of each user.
        users: users in the step.
        new_tokens: new tokens of each user: 1, or those of a verification; all go through the LM head.
        weight_bits, kv_bits: 4, 8, 16 or 32.
        overlap, bandwidth_reached, compute_reached, cards, collective: as in `cost.step_time`.

    Raises:
        ValueError: the model or the card is unknown, or a number is out of range; and as in `cost.model_of`.
    """

    view = "step_time"

    def __init__(
        self,
        model: str | Path | dict[str, Any] | PublishedModel = "Llama-3.1-8B",
        card: str = "H100",
        tokens: int = 500,
        users: int = 64,
        *,
        new_tokens: int = 1,
        weight_bits: int = 16,
        kv_bits: int = 16,
        overlap: bool = False,
        bandwidth_reached: float = 1.0,
        compute_reached: float = 1.0,
        cards: int = 1,
        collective: float = 0.0,
    ) -> None:
        one_of("card", card, CARDS)
        one_of("weight_bits", weight_bits, SAY["formats"])
        one_of("kv_bits", kv_bits, SAY["formats"])
        one_of("overlap", overlap, [True, False])
        self.model = model_of(model)
        self.card = CARDS[card]
        reached = {"bandwidthReached": bandwidth_reached, "computeReached": compute_reached}
        self.chosen: dict[str, Any] = {
            **{"tokens": tokens, "users": users, "newTokens": new_tokens, "cards": cards},
            **{"weightBits": weight_bits, "kvBits": kv_bits, "overlap": overlap},
            **{name: round(100 * share, 9) for name, share in reached.items()},
            "collective": round(1e6 * collective, 9),
        }
        more: dict[str, Any] = {"weight_bits": weight_bits, "kv_bits": kv_bits, "overlap": overlap}
        more |= {"bandwidth_reached": bandwidth_reached, "compute_reached": compute_reached}
        more |= {"new_tokens": new_tokens, "logits": None, "cards": cards, "collective": collective}
        self.step = step_time(self.model, self.card, tokens, users, **more)
        for name, field in SAY["fields"].items():
            least, most = field["least"], field["most"]
            values = {"name": field["name"], "got": self.chosen[name], "least": least, "most": most}
            need(least <= self.chosen[name] <= most, fill(SAY["range"], **values))

    @property
    def data(self) -> str:
        """The models and cards to choose from."""
        offered = machines()
        if self.model not in MODELS.values():
            offered["models"].append(model_line(self.model))
        return json.dumps(offered)

    @property
    def options(self) -> dict[str, Any]:
        """The initial settings."""
        return {"case": {"model": self.model.name, "card": self.card.name, **self.chosen}}

    @property
    def answer(self) -> str:
        """Sentences on the time of the step, its throughput and its bound."""
        step, case = self.step, self.chosen
        kind, rates = ("verification", "accepted") if case["newTokens"] > 1 else ("decode", "plain")
        reached = case["bandwidthReached"] == case["computeReached"] == 100
        least = SAY["least"][0 if reached else 1]
        time = fill(SAY["step"][kind], least=least, tokens=case["newTokens"], time=unit(step.total, "s"))
        speeds = {"one": digits(step.per_user), "all": digits(step.throughput), "users": case["users"]}
        rate = fill(SAY["rates"][rates]["all" if case["users"] > 1 else "one"], **speeds)
        term, longest = SAY["terms"][step.longest_term], getattr(step, step.longest_term)
        bound = fill(SAY["bound"], bound=step.bound, term=term, time=unit(longest, "s"))
        return f"{time} {rate} {bound}"

    @property
    def room(self) -> tuple[str, str]:
        """Sentences on the memory in use, and on whether the users fit."""
        case, kept = self.chosen, self.chosen["tokens"] + self.chosen["newTokens"]
        weights, user, has = self._nbytes
        fit = users_that_fit(has, weights, user)
        kind = (
            ("too many" if fit < case["users"] else "fit") if fit else "none" if weights > has else "no room"
        )
        card = self.card.name
        if case["cards"] > 1:
            card = fill(SAY["several cards"], cards=case["cards"], card=card)
        rows = gib(case["users"] * user)
        holds = fill(SAY["holds"], weights=gib(weights), rows=rows, has=gib(has))
        values = {"fit": fit, "users": case["users"], "tokens": kept, "model": self.model.name, "card": card}
        return holds, fill(SAY[kind], **values)

    @property
    def left(self) -> str:
        """Sentences on what is assumed, and what is not counted."""
        model = self.model
        sentences = [*model.notes, SAY["longer"][self.chosen["overlap"]], SAY["left"]]
        if model.experts:
            of, chosen = model.experts
            sentences.insert(len(model.notes), fill(SAY["experts"], of=of, chosen=chosen))
        if self.chosen["tokens"] + self.chosen["newTokens"] > model.max_seq_len:
            sentences.insert(0, fill(SAY["long"], model=model.name, longest=model.max_seq_len))
        return " ".join(sentences)

    @property
    def _nbytes(self) -> tuple[int, int, int]:
        """Bytes of the weights, of one user's KV entries, and of the memory, over all cards."""
        case = self.chosen
        kept, cards = case["tokens"] + case["newTokens"], case["cards"]
        return (
            nbytes_of(self.model.n_parameters, case["weightBits"] / 8),
            cache_nbytes(self.model.layers, kept, case["kvBits"] / 8, cards),
            cards * self.card.memory_nbytes,
        )

    def bars(self) -> list[Bar]:
        """Return the step by term, bandwidth and compute beside each other, and what the memory holds."""
        weights, user, has = self._nbytes
        rows = self.chosen["users"] * user
        pieces = [Piece("weights", 0, weights, gib(weights)), Piece("kv_cache", weights, rows, gib(rows))]
        return [*bars_of(self.step), Bar(SAY["memory"], pieces, max(has, weights + rows), has)]

    def still(self) -> Still:
        """Return the bars at the settings, and the sentences beside them."""
        names = {name: field["name"] for name, field in (SAY["fields"] | SAY["bits"]).items()}
        shown = {"model": self.model.name, "card": self.card.name}
        more = {name: x for name, x in self.chosen.items() if x != PLAIN.get(name)}
        shown |= {names[name]: f"{x:,}" for name, x in more.items() if name in names}
        shown |= {SAY["overlap"]["name"]: SAY["overlap"]["choices"][1]} if "overlap" in more else {}
        chosen = "; ".join(f"{name}: {value}" for name, value in shown.items())
        bars = self.bars()
        sentences = [f"{chosen}.", self.answer, "{}. {}".format(*self.room), self.left]
        return Still(
            lambda sheet: _draw(sheet, bars), "; ".join(bar.in_words() for bar in bars) + ".", sentences
        )

    def __repr__(self) -> str:
        users, tokens = (f"{self.chosen[name]:,}" for name in ("users", "tokens"))
        return f"StepTime({self.model.name} on {self.card.name}, {users} users of {tokens} tokens)"


@dataclass(frozen=True)
class Piece:
    """A term in a bar: where it begins, how long it is, and its number."""

    term: str
    start: float
    length: float
    number: str

    @property
    def text(self) -> str:
        return f"{SAY['short'][self.term]} {self.number}"


@dataclass(frozen=True)
class Bar:
    """Pieces of a whole; a frame as long as `frame`, or none."""

    name: str
    pieces: list[Piece]
    whole: float
    frame: float = 0

    def in_words(self) -> str:
        return f"{self.name}: {', '.join(piece.text for piece in self.pieces)}"


def bars_of(step: StepSeconds) -> list[Bar]:
    """Return the bars of a step, of bandwidth and of compute; what runs together begins at one place."""
    start, bars = 0.0, {name: list[Piece]() for name in ("step", "memory", "compute")}

    def laid(terms: tuple[str, ...]) -> list[Piece]:
        pieces, at = [], start
        for term in terms:
            seconds = getattr(step, term)
            pieces.append(Piece(term, at, seconds, unit(seconds, "s")))
            at += seconds
        return pieces

    for memory, compute in concurrent_terms(step.overlap):
        longer = laid(memory if memory[0] in step.critical_terms else compute)
        bars["memory"] += laid(memory)
        bars["compute"] += laid(compute)
        bars["step"] += longer
        start += sum(piece.length for piece in longer)
    bars["step"] += [piece for piece in laid(ON_TOP) if piece.length]
    return [Bar(SAY["bars"][name], pieces, step.total) for name, pieces in bars.items()]


def _draw(sheet: Sheet, bars: list[Bar]) -> None:
    """Draw the bars, each with its name before it, and under them once each what the pieces are."""
    left, right, y = 90, sheet.width - 10, 8.0
    for bar in bars:
        high, wide = (26 if bar is bars[0] else 14), right - left
        if bar.frame:
            y = _key(sheet, bars[:-1], left, y) + 10
        sheet.note(left - 10, y + high / 2, bar.name, at="right")
        for piece in bar.pieces:
            x, to = (left + wide * n / bar.whole for n in (piece.start, piece.start + piece.length))
            sheet.box(x, y, max(1, to - x), high, fill=FILLS[piece.term], radius=0)
        if bar.frame:
            sheet.box(left, y - 2, wide * bar.frame / bar.whole, high + 4, edge="ink", line=1.5, radius=2)
        y += high + 6
    _key(sheet, bars[-1:], left, y + 4)


def _key(sheet: Sheet, bars: list[Bar], left: float, y: float) -> float:
    """Write the pieces, each once, with its colour before it; return where the lines end."""
    x = left
    for text, term in {piece.text: piece.term for bar in bars for piece in bar.pieces}.items():
        wide = text_width(text, SMALL) + 36
        if x > left and x + wide > sheet.width:
            x, y = left, y + 20
        sheet.box(x, y + 2, 12, 12, fill=FILLS[term], radius=1)
        sheet.note(x + 18, y + 8, text)
        x += wide
    return y + 18
