"""`bench_limit.py` compares one model with itself: llama.cpp gives our logits, other weights are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.model import shipped
from helpers.model.load import load
from helpers.model.transformer import Transformer
from tests.benchmarks import llama
from tests.benchmarks.bench_limit import KINDS, LONGEST, PROMPT, TOLERANCE, Ours, errors_of
from tests.gguf_file import write

torch.set_num_threads(1)
IDS = torch.randint(0, shipped.CONFIG.vocab_size, (1, PROMPT), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bits", KINDS)
def test_llama_cpp_gives_our_logits(tmp_path: Path, bits: int) -> None:
    if not (library := llama.library()):
        pytest.skip("llama.cpp is not there: pip install -r tests/benchmarks/requirements.txt")
    file = write(tmp_path / "m.gguf", shipped.load()[0], KINDS[bits], llama.NO_TOKENIZER)
    theirs = llama.Llama(library, file, bits, threads=1, max_len=LONGEST)
    errors = errors_of({"ours": Ours(load(file), 32), "theirs": theirs}, IDS)
    theirs.close()
    assert 0 < errors["theirs"] <= TOLERANCE[bits]


def test_other_weights_are_refused() -> None:
    models = {"ours": shipped.load()[0], "other": Transformer(shipped.CONFIG)}
    with pytest.raises(SystemExit, match=r"other: logits are off by .*; expected 0\.3% at most"):
        errors_of({name: Ours(model, 32) for name, model in models.items()}, IDS)
