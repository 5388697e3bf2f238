"""Direct logit attribution: how much each part of a model contributes to a logit.

The residual stream is a sum of the parts' outputs; for a fixed scale of the final norm, so is each logit.

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
    """A model's prediction after a prompt, and the contribution of each part to the logit of a name.

    A model of four layers has nine parts: the embedding, and attention and MLP of each layer.
    """

    prediction: str  # the most probable next word and its probability
    by_part: dict[str, float]  # contribution to the logit of the name, relative to the mean of other names


def residual_contributions(model: Transformer, tokens: Tensor) -> dict[str, Tensor]:
    """Return the vector that each part adds to the residual stream of the last token.

    Args:
        model: the model to run.
        tokens: ids of one sequence, (1, T).

    Returns:
        Vectors (C,) by the name of the part, in the order of addition: "embedding", "attention 1", "MLP 1",
        "attention 2" and so on, with layers counted from 1. Their sum is the input of the final norm.
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
    """Return each part's contribution to the logit of a word, minus its mean contribution to other words.

    The final norm divides the residual stream by one number, the root of its mean square. That number is held
    fixed, although it would change if a part were removed. So the contributions sum to the logit of the word
    minus the mean logit of the others.

    Args:
        model: the model that computed the parts.
        parts: vectors (C,), from `residual_contributions`.
        word: id of the word.
        others: ids of the other words.
    """
    lists = torch.stack([*parts.values()])  # (parts, C)
    size = (lists.sum(dim=0).square().mean() + model.norm.eps).sqrt()  # what the final norm divides by
    towards = model.lm_head.weight[word] - model.lm_head.weight[others].mean(dim=0)  # (C,)
    return dict(zip(parts, (lists / size * model.norm.weight @ towards).tolist(), strict=True))


def name_contributions(model: Transformer, tokenizer: Tokenizer, prompt: str, name: str) -> NameContributions:
    """Return the prediction after a prompt, and each part's contribution to the logit of a name.

    Contributions are relative to the mean of the other 49 names in the corpus.
    """
    prediction, p = next_words(model, tokenizer, prompt, 1)[0]
    word, *others = tokenizer.encode(" ".join([name, *(other for other in corpus.NAMES if other != name)]))
    parts = residual_contributions(model, torch.tensor([tokenizer.encode(prompt)]))
    return NameContributions(f"{prediction} ({p:.2f})", logit_contributions(model, parts, word, others))
