"""An exhibit: a bug report, the rebuilt bug, two prompts, and three possible causes (one is right)."""

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
TOLERANCE = 1e-3  # largest difference that is still rounding, relative to the largest value
BFLOAT16_TOLERANCE = 0.05  # the same for a model that rounds to bfloat16
SHARING_LAYER = 3  # uses the KV entries of the layer before it; its own K and V weights have no effect


@cache
def load_model(name: str) -> tuple[Transformer, Tokenizer]:
    """Return a model for exhibits, and the model's tokenizer.

    `name` is "diary" for the shipped model, or "adapter", "bfloat16", "float32" or "sharing" for a changed
    copy of it. "bfloat16" and "float32" say to what each matrix product is rounded.
    """
    model, tokenizer = shipped.load_shipped("gqa")
    if name == "adapter":
        model = with_adapter(model, scale=1.5)
    if name == "bfloat16":
        model = model.double()  # whose own rounding is too small to matter, on every machine
    if name in ("bfloat16", "float32"):
        dtype = torch.bfloat16 if name == "bfloat16" else torch.float32
        for block in [*model.modules()]:
            for part, linear in [*block.named_children()]:
                if isinstance(linear, nn.Linear):
                    setattr(block, part, RoundedLinear(linear, dtype))
    if name == "sharing":
        chance = torch.Generator().manual_seed(0)
        for part in ("k_proj", "v_proj"):
            weight = model.layers[SHARING_LAYER].get_submodule(f"self_attn.{part}").get_parameter("weight")
            weight.data = torch.randn(weight.shape, generator=chance) * 2 * weight.std()
    return model, tokenizer


class RoundedLinear(nn.Module):
    """A linear layer that adds up its output from several matrix products, one per piece of the input.

    The input's channels are divided evenly into pieces. Each product and each sum is rounded to `dtype`.
    """

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear, self.dtype, self.pieces = linear, dtype, 1

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x, of shape (…, C), by the weight. The result has shape (…, C')."""
        sizes = x.shape[-1] // self.pieces
        pairs = zip(x.split(sizes, -1), self.linear.weight.split(sizes, 1), strict=True)
        total = torch.zeros(1)
        for part, weight in pairs:
            total = (total + (part @ weight.mT).to(self.dtype).to(x.dtype)).to(self.dtype).to(x.dtype)
        return total


class Location(NamedTuple):
    """Where two runs differ: the indices of a pass, a layer, a head and a token, all from 0."""

    pass_index: int
    layer: int
    head: int
    token: int


class Fingerprint(NamedTuple):
    """The differences between the contexts of two runs of the same tokens.

    Attributes:
        max_differences: the largest difference in each layer and pass, of shape (L, passes). It is relative
            to the largest absolute value of the layer's contexts in that pass, in either run.
        first_difference: the location of the first difference larger than rounding, or None.
    """

    max_differences: np.ndarray
    first_difference: Location | None


def fingerprint(expected: Trace, actual: Trace, tolerance: float = TOLERANCE, n_pads: int = 0) -> Fingerprint:
    """Compare two runs by the context that each head computes for each token.

    Args:
        expected, actual: the traces of two runs of the same tokens. The two runs may divide the tokens into
            passes differently; the fingerprint has the passes of `actual`.
        tolerance: the largest relative difference that counts as rounding.
        n_pads: number of padding tokens before the prompt in `actual`.
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
            if first is None and not off.max() <= tolerance:  # larger, or NaN
                layer, head, token = np.argwhere(~(off <= tolerance))[0].tolist()
                first = Location(n, layer, head, tokens[token])
    return Fingerprint(max_differences, first)


def contexts_by_pass(trace: Trace) -> list[dict[int, np.ndarray]]:
    """Return one dict per pass. It maps the index of each new token to its contexts, of shape (L, H, D)."""
    L, H = trace.model.n_layers, trace.model.n_heads
    passes = []
    for event in trace.runs[0].passes:
        [part] = event.parts
        x = np.array([[part.contexts[f"{layer}.{head}"] for head in range(H)] for layer in range(L)])
        passes.append(dict(zip(indices_of_ranges(part.new), np.moveaxis(x, 2, 0), strict=True)))
    return passes


@dataclass(frozen=True, repr=False)
class LabelledLines:
    """Lines of text with a label each, stored as (label, text) pairs."""

    lines: list[tuple[str, str]]

    def __repr__(self) -> str:
        return "\n".join(f"{label}: {text}" for label, text in self.lines)

    def _repr_html_(self) -> str:
        style = "padding-left:7.5em;text-indent:-7.5em"
        label = '<b style="display:inline-block;width:7.5em;text-indent:0">{} </b>'
        lines = (
            f'<div style="{style}">{label.format(name)}{escape(text)}</div>' for name, text in self.lines
        )
        return f'<div style="max-width:46em;line-height:1.45">{"".join(lines)}</div>'


class RepairedAndBuggy(NamedTuple):
    """The runners of two runs, one without the bug and one with it, whose replies are the same."""

    repaired: Runner
    buggy: Runner


@dataclass(frozen=True, eq=False, repr=False)
class Exhibit:
    """A bug that a real project shipped, planted in this project's decoder.

    Attributes:
        name: the name of the bug.
        issue: the GitHub issue or pull request that reported it, such as "vllm-project/vllm #39146".
        symptom: what users saw or would see.
        found: who found the bug, as far as the report says.
        causes: three possible causes.
        correct_cause: the index of the right cause, from 0.
        failing_prompt: a prompt whose reply the bug changes.
        passing_prompt: a prompt whose reply is right in spite of the bug.
        serve: the function that answers a prompt, with or without the bug.
        model_name: the name of the model that answers; see `load_model`.
        n_tokens: the maximum number of tokens per reply.
        replies: the names of the two runs, without and with the bug.
    """

    name: str
    issue: str
    symptom: str
    found: str
    causes: tuple[str, str, str]
    correct_cause: int
    failing_prompt: ExhibitPrompt
    passing_prompt: ExhibitPrompt
    serve: ServeFunction
    model_name: str = "diary"
    n_tokens: int = 8
    replies: tuple[str, str] = ("repaired", "shipped")

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
        """Answer a prompt, with or without the bug, and return the runner.

        `forced_ids` and `mask_function` are as in `Runner`.
        """
        runner = Runner(*load_model(self.model_name), self.n_tokens, forced_ids, mask_function)
        self.serve(runner, prompt, with_bug)
        return runner

    @cache  # noqa: B019
    def run_both(self, prompt: ExhibitPrompt) -> RepairedAndBuggy:
        """Answer a prompt without the bug. Then run the same prompt and the same reply with the bug."""
        repaired = self.answer(prompt, with_bug=False)
        buggy = self.answer(prompt, with_bug=True, forced_ids=repaired.output_ids)
        return RepairedAndBuggy(repaired, buggy)

    def fingerprint(self, prompt: ExhibitPrompt | None = None) -> Fingerprint:
        """Return the fingerprint of the runs without and with the bug, by default on `failing_prompt`."""
        repaired, buggy = self.run_both(prompt or self.failing_prompt)
        return fingerprint(repaired.trace, buggy.trace, self.tolerance)

    @property
    def tolerance(self) -> float:
        """The largest difference that is still rounding, relative to the largest value."""
        return BFLOAT16_TOLERANCE if self.model_name == "bfloat16" else TOLERANCE

    def first_difference(self, prompt: ExhibitPrompt | None = None) -> str:
        """Return where the runs without and with the bug first differ, by default on `failing_prompt`.

        The location is worded as in `compare`, but passes, layers, heads and tokens are numbered from 1. If
        the runs do not differ, the result is "equal".
        """
        repaired, buggy = self.run_both(prompt or self.failing_prompt)
        where = compare(repaired.trace, buggy.trace).removeprefix("reply, ").split(": [")[0]
        from_1 = re.sub(r"\b(pass|layer|head|position) (\d+)", lambda n: f"{n[1]} {int(n[2]) + 1}", where)
        return from_1.replace("position", "token")

    def question(self) -> LabelledLines:
        """Return the symptom and the three possible causes, without the replies and the first difference."""
        report = [("seen", self.symptom), ("found", self.found)]
        return LabelledLines([*report, *zip("abc", self.causes, strict=True)])

    def with_token_count(self, text: str) -> str:
        """Return a text followed by its number of tokens in parentheses, or "" if the text is empty."""
        return text and f"{text} ({len(load_model(self.model_name)[1].encode(text))} tokens)"

    def describe_passing_prompt(self) -> str:
        """Return the passing prompt, and whether its runs without and with the bug are equal, as one line."""
        text, before = self.passing_prompt[:2]
        asked = self.with_token_count(text) if text != self.failing_prompt.text else "the same text"
        if text == self.failing_prompt.text:
            asked += f", after: {self.with_token_count(before)}" if before else ", alone"
        equal = self.first_difference(self.passing_prompt) == "equal"
        return asked + (": equal" if equal else ": they differ, but no word changes")

    def summary(self) -> LabelledLines:
        """Return the whole exhibit as a reader sees it.

        It consists of the symptom, the failing prompt with both replies to it, the first difference, the
        passing prompt, and the three possible causes.
        """
        repaired, shipped = (
            self.answer(self.failing_prompt, with_bug).reply_text for with_bug in (False, True)
        )
        lines = [
            ("prompt", self.with_token_count(self.failing_prompt.text)),
            (
                self.failing_prompt.other_request_time,
                self.with_token_count(self.failing_prompt.other_request),
            ),
            (self.replies[0], f"… {repaired}"),
            (self.replies[1], f"… {shipped}"),
            ("first differ", self.first_difference()),
            ("not here", self.describe_passing_prompt()),
        ]
        *report, a, b, c = self.question().lines
        return LabelledLines([*report, *(line for line in lines if line[1]), a, b, c])

    def __repr__(self) -> str:
        return repr(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def register_exhibit(**attributes: Any) -> Callable[[ServeFunction], ServeFunction]:
    """Return a decorator that makes an `Exhibit` from a `serve` function and adds the exhibit to EXHIBITS.

    The exhibit has the function's name. Its other attributes are `attributes`.
    """

    def register(serve: ServeFunction) -> ServeFunction:
        EXHIBITS[serve.__name__] = Exhibit(serve.__name__, serve=serve, **attributes)
        return serve

    return register
