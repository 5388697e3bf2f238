"""An exhibit: a report, the rebuilt bug, two prompts, and three possible causes, one of them right."""

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
from helpers.museum.runner import ExhibitPrompt, MaskFunction, Runner
from helpers.tokenizer import Tokenizer
from helpers.trace import Trace, compare, indices_of_ranges

ServeFunction = Callable[[Runner, ExhibitPrompt, bool], None]
EXHIBITS: dict[str, Exhibit] = {}
TOLERANCE = 1e-3  # difference of a context, relative to the largest number
BFLOAT16_TOLERANCE = 0.05  # the same for numbers that are rounded to bfloat16
SHARING_LAYER = 3  # the layer that shares the rows of the one before; its own K and V weights are never used


@cache
def load_model(name: str) -> tuple[Transformer, Tokenizer]:
    """Return the model of an exhibit and its tokenizer.

    `name` is "diary" for the shipped model, or the name of a changed copy: "hybrid", "adapter", "bfloat16" or
    "sharing".
    """
    model, tokenizer = shipped.load_shipped("hybrid" if name == "hybrid" else "gqa")
    if name == "adapter":
        model = with_adapter(model, scale=1.5)
    if name == "bfloat16":
        model = model.double()  # whose own rounding is too small to matter, on every machine
        for block in [*model.modules()]:
            for part, linear in [*block.named_children()]:
                if isinstance(linear, nn.Linear):
                    setattr(block, part, RoundedLinear(linear))
    if name == "sharing":
        chance = torch.Generator().manual_seed(0)
        for part in ("k_proj", "v_proj"):
            weight = model.layers[SHARING_LAYER].get_submodule(f"self_attn.{part}").get_parameter("weight")
            weight.data = torch.randn(weight.shape, generator=chance) * 2 * weight.std()
    return model, tokenizer


class RoundedLinear(nn.Module):
    """A matrix product as a sum of several pieces. Each piece and each sum is rounded to bfloat16."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear, self.pieces = linear, 1

    def forward(self, x: Tensor) -> Tensor:
        """Multiply: (…, C) → (…, C')."""
        sizes = x.shape[-1] // self.pieces
        pairs = zip(x.split(sizes, -1), self.linear.weight.split(sizes, 1), strict=True)
        total = torch.zeros(1)
        for part, weight in pairs:
            total = (total + (part @ weight.mT).bfloat16().to(x.dtype)).bfloat16().to(x.dtype)
        return total


class Location(NamedTuple):
    """A pass, a layer, a head and a token's index in the text, all from 0."""

    pass_index: int
    layer: int
    head: int
    token: int


class Fingerprint(NamedTuple):
    """Where two runs of the same words differ.

    Attributes:
        max_differences: the largest difference of any context in a layer and pass, relative to the largest
            number there in either run, (L, passes).
        first_difference: the first location with a difference larger than rounding, or None.
    """

    max_differences: np.ndarray
    first_difference: Location | None


def fingerprint(expected: Trace, actual: Trace, tolerance: float = TOLERANCE, n_pads: int = 0) -> Fingerprint:
    """Compare the context of each head and token in two runs.

    Args:
        expected, actual: runs of the same words, which may be divided into different passes. The result has
            the passes of `actual`.
        tolerance: the largest relative difference that counts as rounding.
        n_pads: number of padding tokens at the beginning of `actual`.
    """
    by_token = {token: x for of_pass in contexts_by_pass(expected) for token, x in of_pass.items()}
    passes = contexts_by_pass(actual)
    max_differences, first = np.zeros((actual.model.n_layers, len(passes))), None
    for n, of_pass in enumerate(passes):
        tokens = [token for token in of_pass if token >= n_pads]
        if tokens:
            x = np.stack([by_token[token - n_pads] for token in tokens], 2)  # (L, H, T, D)
            y = np.stack([of_pass[token] for token in tokens], 2)
            off = np.abs(x - y).max(-1) / np.maximum(np.abs(x), np.abs(y)).max((1, 2, 3))[:, None, None]
            max_differences[:, n] = off.max((1, 2))  # of (L, H, T)
            if first is None and off.max() > tolerance:
                layer, head, token = np.argwhere(off > tolerance)[0].tolist()
                first = Location(n, layer, head, tokens[token])
    return Fingerprint(max_differences, first)


def contexts_by_pass(trace: Trace) -> list[dict[int, np.ndarray]]:
    """Return, for each pass, a mapping from the index of each new token to its contexts, (L, H, D)."""
    L, H = trace.model.n_layers, trace.model.n_heads
    passes = []
    for event in trace.runs[0].passes:
        [part] = event.parts
        x = np.array([[part.contexts[f"{layer}.{head}"] for head in range(H)] for layer in range(L)])
        passes.append(dict(zip(indices_of_ranges(part.new), np.moveaxis(x, 2, 0), strict=True)))
    return passes


@dataclass(frozen=True, repr=False)
class LabelledLines:
    """Lines of text as (label, text) pairs."""

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


class RepairedAndBuggy(NamedTuple):
    """The runners of two replies with the same words, without and with the bug."""

    repaired: Runner
    buggy: Runner


@dataclass(frozen=True, eq=False, repr=False)
class Exhibit:
    """A bug that a real project shipped, planted in this project's decoder.

    Attributes:
        name: the name of the bug.
        issue: the GitHub issue or pull request that reported it, such as "vllm-project/vllm #39146".
        symptom: what users saw or would see.
        causes: three possible causes.
        correct_cause: the index of the right cause, from 0.
        failing_prompt: a prompt whose reply is wrong.
        passing_prompt: a prompt whose reply is right in spite of the bug.
        serve: a function that answers a prompt, with the bug or without it.
        model_name: the name of the model that answers; see `load_model`.
        n_tokens: the maximum number of tokens in a reply.
    """

    name: str
    issue: str
    symptom: str
    causes: tuple[str, str, str]
    correct_cause: int
    failing_prompt: ExhibitPrompt
    passing_prompt: ExhibitPrompt
    serve: ServeFunction
    model_name: str = "diary"
    n_tokens: int = 8

    @property
    def issue_url(self) -> str:
        """The address of the issue or pull request on GitHub."""
        repository, number = self.issue.replace(" PR", "").split(" #")
        kind = "pull" if " PR " in self.issue else "issues"
        return f"https://github.com/{repository}/{kind}/{number}"

    def answer(
        self,
        prompt: ExhibitPrompt,
        with_bug: bool,
        forced_ids: Sequence[int] = (),
        mask_function: MaskFunction | None = None,
    ) -> Runner:
        """Answer a prompt with or without the bug, and return the runner; see `Runner` for the arguments."""
        runner = Runner(*load_model(self.model_name), self.n_tokens, forced_ids, mask_function)
        self.serve(runner, prompt, with_bug)
        return runner

    @cache  # noqa: B019
    def run_both(self, prompt: ExhibitPrompt) -> RepairedAndBuggy:
        """Answer a prompt without the bug, then with the bug but with the same words as its reply."""
        repaired = self.answer(prompt, with_bug=False)
        buggy = self.answer(prompt, with_bug=True, forced_ids=repaired.output_ids)
        return RepairedAndBuggy(repaired, buggy)

    def fingerprint(self, prompt: ExhibitPrompt | None = None) -> Fingerprint:
        """Return where the runs with and without the bug differ, by default for `failing_prompt`."""
        repaired, buggy = self.run_both(prompt or self.failing_prompt)
        tolerance = BFLOAT16_TOLERANCE if self.model_name == "bfloat16" else TOLERANCE
        return fingerprint(repaired.trace, buggy.trace, tolerance)

    def first_difference(self, prompt: ExhibitPrompt | None = None) -> str:
        """Return the first difference of the two traces in the words of `compare`, but counted from 1.

        If there is no difference, the result is "equal".
        """
        repaired, buggy = self.run_both(prompt or self.failing_prompt)
        where = compare(repaired.trace, buggy.trace).removeprefix("reply, ").split(": [")[0]
        from_1 = re.sub(r"\b(pass|layer|head|position) (\d+)", lambda n: f"{n[1]} {int(n[2]) + 1}", where)
        return from_1.replace("position", "token")

    def question(self) -> LabelledLines:
        """Return the symptom and the three causes, but neither the replies nor the first difference."""
        return LabelledLines([("reported", self.symptom), *zip("abc", self.causes, strict=True)])

    def with_token_count(self, text: str) -> str:
        """Append the number of tokens to a text, in parentheses. Return "" for an empty text."""
        return text and f"{text} ({len(load_model(self.model_name)[1].encode(text))} tokens)"

    def describe_passing_prompt(self) -> str:
        """Return the passing prompt, and whether the runs with and without the bug are equal for it."""
        text, before = self.passing_prompt[:2]
        asked = self.with_token_count(text) if text != self.failing_prompt.text else "the same text"
        if text == self.failing_prompt.text:
            asked += f", after: {self.with_token_count(before)}" if before else ", alone"
        equal = self.first_difference(self.passing_prompt) == "equal"
        return asked + (": equal" if equal else ": they differ, by too little for other words")

    def summary(self) -> LabelledLines:
        """Return what a reader sees: the symptom, both replies, the first difference and the three causes."""
        repaired, shipped = (
            self.answer(self.failing_prompt, with_bug).reply_text for with_bug in (False, True)
        )
        lines = [
            ("asked", self.with_token_count(self.failing_prompt.text)),
            (
                self.failing_prompt.other_request_time,
                self.with_token_count(self.failing_prompt.other_request),
            ),
            ("repaired", f"… {repaired}"),
            ("shipped", f"… {shipped}"),
            ("they part", self.first_difference()),
            ("not here", self.describe_passing_prompt()),
        ]
        *users, a, b, c = self.question().lines
        return LabelledLines([*users, *(line for line in lines if line[1]), a, b, c])

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def register_exhibit(**attributes: Any) -> Callable[[ServeFunction], ServeFunction]:
    """Return a decorator that adds a `serve` function to EXHIBITS under its name.

    `attributes` are the other attributes of `Exhibit`.
    """

    def register(serve: ServeFunction) -> ServeFunction:
        EXHIBITS[serve.__name__] = Exhibit(serve.__name__, serve=serve, **attributes)
        return serve

    return register
