"""What an exhibit is: a thread, what users saw, a bug, two prompts, three causes of which one is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from helpers.model import shipped
from helpers.model.adapter import with_adapter
from helpers.model.transformer import Transformer
from helpers.museum.desk import Ask, Desk, Repair
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace, compare

Serve = Callable[[Desk, Ask, bool], None]
ROOMS = json.loads((Path(__file__).parent / "rooms.json").read_text(encoding="utf-8"))
EXHIBITS: dict[str, Exhibit] = {}
TOLERANCE = 1e-3  # of a context, as a share of the largest
COARSE = 0.05  # the same where numbers are rounded to bfloat16
LEFTOVER = 3  # the layer that shares the rows of the one before; its own K and V weights are never used


@cache
def model_of(name: str) -> tuple[Transformer, Tokenizer]:
    """Return who serves an exhibit, the shipped model or a copy with a change, and its tokenizer."""
    model, tokenizer = shipped.load("hybrid" if name == "hybrid" else "gqa")
    if name == "adapter":
        model = with_adapter(model, scale=1.5)
    if name in ("bfloat16", "float32"):
        model = model.double()  # whose own rounding is too small to matter, on every machine
        for block in [*model.modules()]:
            for part, linear in [*block.named_children()]:
                if isinstance(linear, nn.Linear):
                    setattr(block, part, Rounded(linear, getattr(torch, name)))
    if name == "sharing":
        chance = torch.Generator().manual_seed(0)
        for part in ("k_proj", "v_proj"):
            weight = model.layers[LEFTOVER].get_submodule(f"self_attn.{part}").get_parameter("weight")
            weight.data = torch.randn(weight.shape, generator=chance) * 2 * weight.std()
    return model, tokenizer


class Rounded(nn.Module):
    """A product that is added up in so many pieces, each of them and each sum rounded to a format."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype, pieces: int = 1) -> None:
        super().__init__()
        self.linear, self.dtype, self.pieces = linear, dtype, pieces

    def forward(self, x: Tensor) -> Tensor:
        """Multiply: (…, C) → (…, C')."""
        sizes = x.shape[-1] // self.pieces
        pairs = zip(x.split(sizes, -1), self.linear.weight.split(sizes, 1), strict=True)
        total = torch.zeros(1)
        for part, weight in pairs:
            total = (total + (part @ weight.mT).to(self.dtype).to(x.dtype)).to(self.dtype).to(x.dtype)
        return total


class Place(NamedTuple):
    """A pass, a layer, a head and a token's place in the text, all from 0."""

    number: int
    layer: int
    head: int
    position: int


class Fingerprint(NamedTuple):
    """Where two runs of the same words differ.

    Attributes:
        ink: largest difference of a context, as a share of the largest number there, (L, passes).
        first: the first place that differs by more than rounding in its format; None if there is none.
    """

    ink: np.ndarray
    first: Place | None


def fingerprint(right: Trace, wrong: Trace, tolerance: float = TOLERANCE) -> Fingerprint:
    """Compare what each head made of each new token, pass by pass and layer by layer."""
    passes = [[event.parts[0] for event in trace.runs[0].passes] for trace in (right, wrong)]
    L, H = right.model.n_layers, right.model.n_heads
    ink, first = np.zeros((L, len(passes[0]))), None
    for number, (a, b) in enumerate(zip(*passes, strict=True)):
        for layer in range(L):
            x, y = (np.array([part.contexts[f"{layer}.{head}"] for head in range(H)]) for part in (a, b))
            off = np.abs(x - y).max(-1) / np.abs(x).max()  # (H, T)
            ink[layer, number] = off.max()
            if first is None and off.max() > tolerance:
                head, token = np.argwhere(off > tolerance)[0].tolist()
                first = Place(number, layer, head, a.new[0][0] + token)
    return Fingerprint(ink, first)


@dataclass(frozen=True, repr=False)
class Card:
    """Lines of text, each with its label."""

    lines: list[tuple[str, str]]

    def __repr__(self) -> str:
        return "\n".join(f"{label}: {text}" for label, text in self.lines)

    def _repr_html_(self) -> str:
        style = "padding-left:6.5em;text-indent:-6.5em"
        label = '<b style="display:inline-block;width:6.5em;text-indent:0">{}</b>'
        lines = (
            f'<div style="{style}">{label.format(name)}{escape(text)}</div>' for name, text in self.lines
        )
        return f'<div style="max-width:46em;line-height:1.45">{"".join(lines)}</div>'


@dataclass(frozen=True, eq=False, repr=False)
class Exhibit:
    """A bug that a real project shipped, planted in our decoder.

    Attributes:
        name: by which it is opened.
        reported: the thread.
        users: what users saw.
        causes: three, of which the one at `cause` is right.
        shows: what to ask so that other words come.
        hides: what to ask so that the words are the right ones.
        serve: answers at a desk, as shipped or as repaired.
        model: who answers; see `model_of`.
        n: tokens of a reply.
    """

    name: str
    reported: str
    users: str
    causes: tuple[str, str, str]
    cause: int
    shows: Ask
    hides: Ask
    serve: Serve
    model: str = "diary"
    n: int = 8

    def answer(self, ask: Ask, shipped: bool, told: Sequence[int] = (), repair: Repair = None) -> Desk:
        """Return the desk that has answered; `told` as in `Desk`, `repair` a reader's function."""
        desk = Desk(*model_of(self.model), self.n, told, repair)
        self.serve(desk, ask, shipped)
        return desk

    @cache  # noqa: B019
    def pair(self, ask: Ask) -> tuple[Desk, Desk]:
        """Return the repaired answer, and the shipped one made to say the same words."""
        repaired = self.answer(ask, shipped=False)
        return repaired, self.answer(ask, shipped=True, told=repaired.said)

    def fingerprint(self, ask: Ask | None = None) -> Fingerprint:
        """Return where the two differ, asked `shows` or something else."""
        repaired, shipped = self.pair(ask or self.shows)
        return fingerprint(repaired.trace, shipped.trace, COARSE if self.model == "bfloat16" else TOLERANCE)

    def parts(self, ask: Ask | None = None) -> str:
        """Return the first difference of the two traces, as `compare` words it, or "equal"."""
        repaired, shipped = self.pair(ask or self.shows)
        return str(compare(repaired.trace, shipped.trace)).removeprefix("reply, ").split(": [")[0]

    def question(self) -> Card:
        """Return what users saw and the three causes, without the words and where the traces part."""
        causes = zip("abc", self.causes, strict=True)
        return Card([line for line in [("users saw", self.users), *causes] if line[1]])

    def counted(self, text: str) -> str:
        """Return a text and how many tokens it has; nothing for no text."""
        return text and f"{text} ({len(model_of(self.model)[1].encode(text))} tokens)"

    def harmless(self) -> str:
        """Return what to ask so that the words are right, and whether the two runs are equal then."""
        text, before = self.hides[:2]
        asked = self.counted(text) if text != self.shows.text else "the same text"
        if text == self.shows.text:
            asked += f", after: {self.counted(before)}" if before else ", alone"
        equal = self.parts(self.hides) == "equal"
        return asked + (": equal" if equal else ": they differ, by too little for other words")

    def card(self) -> Card:
        """Return what a visitor sees."""
        right, wrong = (self.answer(self.shows, shipped).words for shipped in (False, True))
        message = {
            "asked": self.counted(self.shows.text),
            self.shows.when: self.counted(self.shows.before),
            "repaired": f"… {right}",
            "shipped": f"… {wrong}",
            "they part": self.parts(),
            "not here": self.reported and self.harmless(),
        }
        *users, a, b, c = self.question().lines
        return Card([*users, *((label, text) for label, text in message.items() if text), a, b, c])

    def __repr__(self) -> str:
        return repr(self.card())

    def _repr_html_(self) -> str:
        return self.card()._repr_html_()


def exhibit(name: str, model: str = "diary") -> Callable[[Serve], Serve]:
    """Keep a function that serves with a bug as an exhibit; `rooms.json` has what is told of it."""

    def keep(serve: Serve) -> Serve:
        message = ROOMS[name]
        asks = {kind: Ask(*message[kind]) for kind in ("shows", "hides")}
        EXHIBITS[name] = Exhibit(**message | asks, name=name, serve=serve, model=model)
        return serve

    return keep
