"""Training: in each step, one masked pass predicts every next token in a batch of texts."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from helpers import corpus
from helpers.tokenizer import Tokenizer

BATCH, LENGTH = 16, 128  # texts per step, targets per text
MAX_NORM = 1.0  # gradients are clipped to this norm, so that one unusual batch cannot spoil the model


def batches(tokenizer: Tokenizer, seed: int, batch: int = BATCH, length: int = LENGTH) -> Iterator[Tensor]:
    """Yield an endless sequence of batches of weather diaries, as token ids.

    Args:
        tokenizer: a tokenizer whose vocabulary has every word of the corpus.
        seed: seed for the random diaries; the same seed gives the same batches.
        batch: number of texts per batch, B.
        length: number of targets per text, T.

    Yields:
        Token ids, of shape (B, T + 1). For each text, text[:-1] is the model's input and text[1:] the
        targets.
    """
    texts = corpus.training_texts(seed, length + 1)
    ids = tokenizer.vocabulary
    while True:
        yield torch.tensor([[ids[word] for word in text] for text in itertools.islice(texts, batch)])


def next_token_loss(model: nn.Module, texts: Tensor) -> Tensor:
    """Return the mean cross-entropy over all next tokens, in nats per token, computed in one pass.

    Args:
        model: a module that maps token ids of shape (B, T) to logits of shape (B, T, V), under a causal mask.
        texts: token ids, of shape (B, T + 1); the target of each token is the next token.
    """
    logits = model(texts[:, :-1])  # (B, T, V)
    return F.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten())


def learning_rate(step: int, steps: int, peak: float) -> float:
    """Return the learning rate of a step: a linear warmup, then half a cosine from the peak down to 0.

    Args:
        step: index of the step, from 0.
        steps: total number of steps; a twentieth of them is warmup, at least one.
        peak: the highest learning rate.
    """
    warmup = max(1, steps // 20)
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2


def train(
    model: nn.Module, batches: Iterable[Tensor], steps: int, *, lr: float = 2e-3, progress_bar: bool = True
) -> list[float]:
    """Train a model in place for a fixed number of steps, with AdamW.

    Args:
        model: a module that maps token ids of shape (B, T) to logits of shape (B, T, V).
        batches: at least `steps` batches of token ids, of shape (B, T + 1) each.
        steps: number of steps; each uses one batch.
        lr: the highest learning rate; see `learning_rate`.
        progress_bar: whether to show a progress bar with the loss, on standard output.

    Returns:
        The loss of each batch, in nats per token, before the model was updated with that batch.

    Raises:
        ValueError: there are fewer batches than steps.
        ArithmeticError: the loss is NaN or infinite. The model can no longer be used: make a new one.
    """
    matrices = [p for p in model.parameters() if p.ndim > 1]  # weight decay applies to these
    scales = [p for p in model.parameters() if p.ndim < 2]  # norms and biases: no weight decay
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": scales, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
    losses: list[float] = []
    model.train()
    with tqdm(
        total=steps, disable=not progress_bar, file=sys.stdout, mininterval=0.5, unit="step"
    ) as progress:
        for texts in itertools.islice(batches, steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(len(losses), steps, lr)
            losses.append(training_step(model, optimizer, texts))
            progress.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
            progress.update()
    model.eval()
    if len(losses) < steps:
        raise ValueError(f"only {len(losses)} batches; expected one for each of {steps} steps")
    return losses


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, texts: Tensor) -> float:
    """Make one optimizer step on a batch of texts. Return the loss before the step, in nats per token.

    `texts` are token ids, of shape (B, T + 1).
    """
    loss = next_token_loss(model, texts)
    check_finite(loss)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    return loss.item()


def check_finite(loss: Tensor) -> None:
    """Raise ArithmeticError if the loss is NaN or infinite."""
    if not torch.isfinite(loss):
        raise ArithmeticError(f"the loss is {loss.item()}: make a new model and lower lr")
