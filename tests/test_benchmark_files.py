"""What the benchmarks compare is the same: llama.cpp's logits, the words of `transformers`' engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.model import shipped
from helpers.model.fast import speed_up
from helpers.model.load import load
from helpers.model.transformer import Transformer
from tests.benchmarks import bench_serving, common, llama
from tests.benchmarks.bench_limit import KINDS, LONGEST, PROMPT, TOLERANCE, Ours, errors_of
from tests.gguf_file import write

torch.set_num_threads(1)
IDS = torch.randint(0, shipped.CONFIG.vocab_size, (1, PROMPT), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bits", KINDS)
def test_llama_cpp_gives_our_logits(tmp_path: Path, bits: int) -> None:
    if not (library := llama.library()):
        pytest.skip("llama.cpp is not there: pip install -r tests/benchmarks/requirements.txt")
    file = write(tmp_path / "m.gguf", shipped.load_shipped()[0], KINDS[bits], llama.NO_TOKENIZER)
    theirs = llama.Llama(library, file, bits, threads=1, max_len=LONGEST)
    errors = errors_of({"ours": Ours(load(file), 32), "theirs": theirs}, IDS)
    theirs.close()
    assert 0 < errors["theirs"] <= TOLERANCE[bits]


def test_other_weights_are_refused() -> None:
    models = {"ours": shipped.load_shipped()[0], "other": Transformer(shipped.CONFIG)}
    with pytest.raises(SystemExit, match=r"other: logits are off by .*; expected 0\.3% at most"):
        errors_of({name: Ours(model, 32) for name, model in models.items()}, IDS)


def test_transformers_says_what_our_engine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight requests of unequal length, 3 at a time: its continuous batching, ours, and ours by the twin."""
    monkeypatch.setattr(bench_serving, "NEW", 12)
    model = shipped.load_shipped()[0]
    asked = bench_serving.prompts_of(model, 8)
    other = common.theirs_of(model)
    output = bench_serving.theirs(other, 3, asked)
    other.destroy_cached_continuous_batching_manager()
    assert output == bench_serving.replies_of(model, 3, asked)
    assert output == bench_serving.replies_of(speed_up(model, threads=1), 3, asked)
    assert [len(reply) for reply in output] == [bench_serving.NEW] * 8
