"""Direct logit attribution: how much each component of a model contributes to a logit.

The components are the embedding, and the attention and MLP of each layer. The residual stream is the sum of
their outputs. If the divisor in the final norm is held fixed, each logit is a sum of one contribution per
component.

Source: Elhage et al. 2021, "A mathematical framework for transformer circuits".
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
    """A model's prediction after a prompt, and the contribution of each component to the logit of a name.

    A model with four layers has nine components: the embedding, four attention layers, and four MLPs.
    """

    prediction: str  # the most probable next word and its probability
    by_part: dict[str, float]  # contribution to the logit of the name, relative to the mean of other names


def residual_contributions(model: Transformer, tokens: Tensor) -> dict[str, Tensor]:
    """Return the vector that each component adds to the residual stream of the last token.

    Args:
        model: the model to run.
        tokens: ids of one sequence, of shape (1, T).

    Returns:
        One vector of shape (C,) per component, by name, in the order of addition: "embedding", "attention 1",
        "MLP 1", "attention 2" and so on, with layers counted from 1. The sum of the vectors is the input of
        the final norm.
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
def logit_contributions(
    model: Transformer, parts: dict[str, Tensor], word: int, others: Sequence[int]
) -> dict[str, float]:
    """Return each component's contribution to a word's logit, minus its mean contribution to other words.

    The final norm divides the residual stream by the root of its mean square. This divisor is held fixed,
    although it would change if a component were removed. The contributions therefore sum to the word's logit
    minus the mean logit of the other words.

    Args:
        model: the model that computed the vectors.
        parts: one vector of shape (C,) per component, from `residual_contributions`.
        word: id of the word.
        others: ids of the other words.
    """
    lists = torch.stack([*parts.values()])  # (parts, C)
    size = (lists.sum(dim=0).square().mean() + model.norm.eps).sqrt()  # what the final norm divides by
    towards = model.lm_head.weight[word] - model.lm_head.weight[others].mean(dim=0)  # (C,)
    return dict(zip(parts, (lists / size * model.norm.weight @ towards).tolist(), strict=True))


def name_contributions(model: Transformer, tokenizer: Tokenizer, prompt: str, name: str) -> NameContributions:
    """Return the prediction after a prompt, and each component's contribution to the logit of a name.

    Contributions are relative to the mean over the other 49 names in the corpus.
    """
    prediction, p = next_words(model, tokenizer, prompt, 1)[0]
    word, *others = tokenizer.encode(" ".join([name, *(other for other in corpus.NAMES if other != name)]))
    parts = residual_contributions(model, torch.tensor([tokenizer.encode(prompt)]))
    return NameContributions(f"{prediction} ({p:.2f})", logit_contributions(model, parts, word, others))
