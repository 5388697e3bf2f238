"""The contribution of each part of a model to a logit: the residual stream is a sum, and so is each logit.

This is direct logit attribution (Elhage et al. 2021, "A mathematical framework for transformer circuits").
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from helpers import corpus
from helpers.model.evaluate import next_words
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer


class NameContributions(NamedTuple):
    """A model's prediction, and the contribution of each part to it: nine parts in a model of four layers."""

    prediction: str  # the most probable next word and its probability
    by_part: dict[str, float]  # to the logit of a name, relative to the mean of the other names


def residual_contributions(model: Transformer, tokens: Tensor) -> dict[str, Tensor]:
    """Return what each part adds to the residual stream of the last token.

    Args:
        tokens: ids, (1, T).

    Returns:
        (C,) each, in the order of addition: embedding, attention 1, MLP 1, attention 2 and so on. Their sum
        is the input of the final norm.
    """
    parts: dict[str, nn.Module] = {"embedding": model.embed_tokens}
    for n, block in enumerate(model.layers, 1):
        parts |= {f"attention {n}": block.get_submodule("self_attn"), f"MLP {n}": block.get_submodule("mlp")}
    output: dict[str, Tensor] = {}

    def keep(name: str, _: nn.Module, __: Any, out: Tensor) -> None:
        output[name] = out[0, -1]

    hooks = [part.register_forward_hook(partial(keep, name)) for name, part in parts.items()]
    try:
        with torch.no_grad():
            model(tokens, last_only=True)
    finally:
        for hook in hooks:
            hook.remove()
    return output


@torch.no_grad()
def contributions(
    model: Transformer, parts: dict[str, Tensor], word: int, others: Sequence[int]
) -> dict[str, float]:
    """Return the contribution of each part to the logit of a word, relative to the mean logit of others.

    The final norm divides the whole stream by one number. It is held fixed, so that the contributions sum to
    the difference of the logits; without one of the parts this number would differ.

    Args:
        parts: what was added to the stream, from `residual_contributions`.
        word, others: ids.
    """
    lists = torch.stack([*parts.values()])  # (parts, C)
    size = (lists.sum(dim=0).square().mean() + model.norm.eps).sqrt()  # what the final norm divides by
    towards = model.lm_head.weight[word] - model.lm_head.weight[others].mean(dim=0)  # (C,)
    return dict(zip(parts, (lists / size * model.norm.weight @ towards).tolist(), strict=True))


def name_contributions(model: Transformer, tokenizer: Tokenizer, prompt: str, name: str) -> NameContributions:
    """Return the prediction after a prompt, and what each part adds to a name relative to the other 49."""
    prediction, p = next_words(model, tokenizer, prompt, 1)[0]
    word, *others = tokenizer.encode(" ".join([name, *(other for other in corpus.NAMES if other != name)]))
    parts = residual_contributions(model, torch.tensor([tokenizer.encode(prompt)]))
    return NameContributions(f"{prediction} ({p:.2f})", contributions(model, parts, word, others))
