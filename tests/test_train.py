"""Training by teacher forcing: batches, targets, learning rate, progress, and what goes wrong."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers import corpus
from helpers.model import shipped
from helpers.model.load import load, load_tokenizer
from helpers.model.train import batches, learning_rate, train
from helpers.model.transformer import Transformer
from helpers.tokenizer import Tokenizer
from tests.tiny import enlarge, tiny_config
from tools import train as command

TOKENIZER = Tokenizer.from_words(corpus.vocabulary())


def small(seed: int = 0) -> Transformer:
    """Make a model that trains in a second; all sizes differ, so that a transpose shows."""
    torch.manual_seed(seed)
    return Transformer(tiny_config(n_layers=1, vocab_size=TOKENIZER.vocab_size, tied=True))


def some(n: int, seed: int = 0) -> list[Tensor]:
    """Return n small batches."""
    return list(itertools.islice(batches(TOKENIZER, seed, batch=4, length=24), n))


def test_batches_come_from_the_corpus() -> None:
    """They go on where the last ended."""
    first, second = some(2)
    assert first.shape == second.shape == (4, 25)
    assert first.dtype == torch.int64
    rows = itertools.islice(corpus.training_texts(0, 25), 8)
    assert [TOKENIZER.words(row.tolist()) for row in (*first, *second)] == list(rows)
    assert not torch.equal(first, some(1, seed=1)[0])
    assert next(batches(TOKENIZER, 0)).shape == (16, 129)  # as the shipped model was trained on


def test_learning_rate_schedule() -> None:
    rates = [learning_rate(step, 200, 0.5) for step in range(201)]
    assert rates[:10] == pytest.approx([0.05 * n for n in range(1, 11)])
    assert max(rates) == rates[10] == 0.5
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert rates[105] == pytest.approx(0.25)
    assert rates[200] == pytest.approx(0)
    assert all(0 < learning_rate(step, steps, 1.0) <= 1 for steps in range(1, 50) for step in range(steps))


def test_training_lowers_the_loss(capsys: pytest.CaptureFixture[str]) -> None:
    model = small()
    losses = train(model, some(150), 150, lr=1e-2)
    assert len(losses) == 150
    assert losses[0] == pytest.approx(math.log(TOKENIZER.vocab_size), abs=0.2)  # each word equally likely
    assert sum(losses[-5:]) / 5 < losses[0] / 2
    assert not model.training
    captured = capsys.readouterr()
    assert "150/150" in captured.out
    assert f"loss={losses[-1]:.3f}" in captured.out
    assert captured.err == ""


def test_three_training_steps_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """AdamW on fresh gradients, shortened to a length of 1, at the rates of the schedule: 1, 1 and a half."""
    ours, model, data = small(), small(), some(3)
    for each in (ours, model):
        torch.manual_seed(1)
        enlarge(each)
    parameters = list(model.parameters())
    decays = [(0.1 if p.ndim == 2 else 0.0) for p in parameters]
    groups = [{"params": [p], "weight_decay": decay} for p, decay in zip(parameters, decays, strict=True)]
    optimizer, losses, lengths = torch.optim.AdamW(groups, betas=(0.9, 0.95)), [], []
    for rows, rate in zip(data, (0.02, 0.02, 0.01), strict=True):
        loss = nn.functional.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
        gradients = torch.autograd.grad(loss, parameters)
        lengths.append(float(sum(g.square().sum() for g in gradients)) ** 0.5)
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient * min(1, 1 / lengths[-1])
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        losses.append(loss.item())
    assert train(ours, data, 3, lr=0.02, progress_bar=False) == pytest.approx(losses, rel=1e-4)
    assert capsys.readouterr().out == ""
    assert lengths[0] > 1.5, "a gradient that is short anyway would not show whether it is shortened"
    for a, b in zip(ours.parameters(), parameters, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-3)  # a forgotten one is 0.02 off
    assert all(p.grad is not None for p in ours.parameters())


def test_train_reads_one_batch_per_step() -> None:
    left = iter(some(5))
    train(small(), left, 3, progress_bar=False)
    with pytest.raises(ValueError, match="only 2 batches; expected one for each of 3 steps"):
        train(small(), left, 3, progress_bar=False)


def test_nan_loss_stops_training() -> None:
    model = small()
    with torch.no_grad():
        model.norm.weight.fill_(math.nan)
    with pytest.raises(ArithmeticError, match="the loss is nan: make a new model and lower lr"):
        train(model, some(3), 3, progress_bar=False)


def test_train_command_writes_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that made the shipped checkpoint, for two steps, into another folder."""
    monkeypatch.setattr(command, "DIARIES", 2)
    folder = tmp_path / "weights"
    command.main(["--steps", "2", "--folder", str(folder)])
    names = "config.json model.safetensors model.f16.safetensors tokenizer.json".split()
    assert {path.name for path in folder.iterdir()} == {*names}
    assert load(folder).config == shipped.CONFIG
    words = load_tokenizer(folder).vocabulary
    assert words == {word: i for i, word in enumerate(shipped.VOCABULARY)}
    out = capsys.readouterr().out
    assert "2 steps in " in out
    assert "chance: 0.04%" in out
    command.main(["--variant", "mqa", "--steps", "2", "--folder", str(folder / "mqa")])
    assert {path.name for path in (folder / "mqa").iterdir()} == {"config.json", "model.safetensors"}
    assert load(folder / "mqa").config == shipped.VARIANTS["mqa"]
