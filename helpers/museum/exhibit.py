"""An exhibit: a report, what it says is wrong, a bug, two prompts, three causes, one of which is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from helpers.model import shipped
from helpers.model.adapter import with_adapter
from helpers.model.transformer import Transformer
from helpers.museum.runner import Prompt, Repair, Runner
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace, compare, indices_of_ranges

Serve = Callable[[Runner, Prompt, bool], None]
EXHIBITS: dict[str, Exhibit] = {}
TOLERANCE = 1e-3  # of a context, as a share of the largest
COARSE = 0.05  # the same where numbers are rounded to bfloat16
LEFTOVER = 3  # the layer that shares the rows of the one before; its own K and V weights are never used


@cache
def model_of(name: str) -> tuple[Transformer, Tokenizer]:
    """Return the model of an exhibit, which is the shipped one or a changed copy, and its tokenizer."""
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
    """A matrix product computed in several pieces; each piece and each sum is rounded to a dtype."""

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


class Location(NamedTuple):
    """A pass, a layer, a head and a token's place in the text, all from 0."""

    pass_index: int
    layer: int
    head: int
    token: int


class Fingerprint(NamedTuple):
    """Where two runs of the same words differ.

    Attributes:
        ink: largest difference of a context, relative to the largest number there in either run, (L, passes).
        first: the first location with a larger difference than rounding makes; None if there is none.
    """

    ink: np.ndarray
    first: Location | None


def fingerprint(expected: Trace, actual: Trace, tolerance: float = TOLERANCE, pads: int = 0) -> Fingerprint:
    """Compare each head's context of each token, by the passes and layers of the second run.

    Args:
        expected, actual: runs of the same words, in any passes; `actual` begins with `pads` more tokens.
        tolerance: the largest relative difference that rounding makes.
    """
    by_token = {token: x for of_pass in contexts(expected) for token, x in of_pass.items()}
    passes = contexts(actual)
    ink, first = np.zeros((actual.model.n_layers, len(passes))), None
    for n, of_pass in enumerate(passes):
        tokens = [token for token in of_pass if token >= pads]
        if tokens:
            x = np.stack([by_token[token - pads] for token in tokens], 2)  # (L, H, T, D)
            y = np.stack([of_pass[token] for token in tokens], 2)
            off = np.abs(x - y).max(-1) / np.maximum(np.abs(x), np.abs(y)).max((1, 2, 3))[:, None, None]
            ink[:, n] = off.max((1, 2))  # of (L, H, T)
            if first is None and off.max() > tolerance:
                layer, head, token = np.argwhere(off > tolerance)[0].tolist()
                first = Location(n, layer, head, tokens[token])
    return Fingerprint(ink, first)


def contexts(trace: Trace) -> list[dict[int, np.ndarray]]:
    """Return the contexts of each new token, (L, H, D), by the token's place in the text, pass by pass."""
    L, H = trace.model.n_layers, trace.model.n_heads
    passes = []
    for event in trace.runs[0].passes:
        [part] = event.parts
        x = np.array([[part.contexts[f"{layer}.{head}"] for head in range(H)] for layer in range(L)])
        passes.append(dict(zip(indices_of_ranges(part.new), np.moveaxis(x, 2, 0), strict=True)))
    return passes


@dataclass(frozen=True, repr=False)
class LabelledLines:
    """Lines of text, each with a label."""

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
    """A bug that a real project shipped, planted in this project's decoder.

    Attributes:
        name: the bug.
        reported: the thread in which it was reported.
        users: what users saw or would see.
        causes: three possible causes; the one at `cause` is right.
        shows: a prompt whose reply is wrong.
        hides: a prompt whose reply is right in spite of the bug.
        serve: answers a prompt, as shipped or as repaired.
        model: name of the model that answers; see `model_of`.
        n: tokens of a reply.
    """

    name: str
    reported: str
    users: str
    causes: tuple[str, str, str]
    cause: int
    shows: Prompt
    hides: Prompt
    serve: Serve
    model: str = "diary"
    n: int = 8

    @property
    def address(self) -> str:
        """Address of the thread."""
        repository, number = self.reported.replace(" PR", "").split(" #")
        kind = "pull" if " PR " in self.reported else "issues"
        return f"https://github.com/{repository}/{kind}/{number}"

    def answer(
        self, prompt: Prompt, shipped: bool, forced: Sequence[int] = (), repair: Repair = None
    ) -> Runner:
        """Answer a prompt, and return the runner that ran it; `forced` and `repair` as in `Runner`."""
        runner = Runner(*model_of(self.model), self.n, forced, repair)
        self.serve(runner, prompt, shipped)
        return runner

    @cache  # noqa: B019
    def pair(self, prompt: Prompt) -> tuple[Runner, Runner]:
        """Return the repaired answer, and the shipped one made to say the same words."""
        repaired = self.answer(prompt, shipped=False)
        return repaired, self.answer(prompt, shipped=True, forced=repaired.output_ids)

    def fingerprint(self, prompt: Prompt | None = None) -> Fingerprint:
        """Return where the shipped and the repaired run differ, with `shows` or another prompt."""
        repaired, shipped = self.pair(prompt or self.shows)
        return fingerprint(repaired.trace, shipped.trace, COARSE if self.model == "bfloat16" else TOLERANCE)

    def first_difference(self, prompt: Prompt | None = None) -> str:
        """Return the first difference of the two traces, as `compare` words it but from 1, or "equal"."""
        repaired, shipped = self.pair(prompt or self.shows)
        where = compare(repaired.trace, shipped.trace).removeprefix("reply, ").split(": [")[0]
        from_1 = re.sub(r"\b(pass|layer|head|position) (\d+)", lambda n: f"{n[1]} {int(n[2]) + 1}", where)
        return from_1.replace("position", "token")

    def question(self) -> LabelledLines:
        """Return what was reported and the three causes, without the words and where the traces part."""
        return LabelledLines([("reported", self.users), *zip("abc", self.causes, strict=True)])

    def with_token_count(self, text: str) -> str:
        """Return a text with its number of tokens; "" for no text."""
        return text and f"{text} ({len(model_of(self.model)[1].encode(text))} tokens)"

    def harmless(self) -> str:
        """Return with which prompt the words are right, and whether the two runs are equal then."""
        text, before = self.hides[:2]
        asked = self.with_token_count(text) if text != self.shows.text else "the same text"
        if text == self.shows.text:
            asked += f", after: {self.with_token_count(before)}" if before else ", alone"
        equal = self.first_difference(self.hides) == "equal"
        return asked + (": equal" if equal else ": they differ, by too little for other words")

    def card(self) -> LabelledLines:
        """Return what a visitor sees."""
        repaired, shipped = (self.answer(self.shows, with_bug).text for with_bug in (False, True))
        lines = [
            ("asked", self.with_token_count(self.shows.text)),
            (self.shows.when, self.with_token_count(self.shows.before)),
            ("repaired", f"… {repaired}"),
            ("shipped", f"… {shipped}"),
            ("they part", self.first_difference()),
            ("not here", self.harmless()),
        ]
        *users, a, b, c = self.question().lines
        return LabelledLines([*users, *(line for line in lines if line[1]), a, b, c])

    def __repr__(self) -> str:
        return repr(self.card())

    def _repr_html_(self) -> str:
        return self.card()._repr_html_()


def exhibit(**card: Any) -> Callable[[Serve], Serve]:
    """Register a function that serves with a bug as an exhibit of its name; `card` as in `Exhibit`."""

    def register(serve: Serve) -> Serve:
        EXHIBITS[serve.__name__] = Exhibit(serve.__name__, serve=serve, **card)
        return serve

    return register
