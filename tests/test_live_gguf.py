"""GGUF files in the page: the numbers, tokens and refusals of Python's loader, on the same files."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from helpers.model.config import Llama3Scaling, QKNormConfig
from helpers.model.generate import generate
from helpers.model.load import chat_prompt, load, load_tokenizer
from helpers.tokenizer import Tokenizer
from tests.gguf_file import write
from tests.machine import ROOT
from tests.test_live_decoder import WRITE, answers, check_logits
from tests.test_load_gguf import NEUTRAL, ONES, SMOLLM3, TEXTS, byte_level, factors, vocabulary
from tests.test_load_gguf import SIZES as TINY
from tests.tiny import tiny

torch.set_num_threads(1)

KINDS = "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K".split()
LIBRARY = byte_level()
SIZES = TINY | {"vocab_size": LIBRARY.get_vocab_size()}
WORDS = vocabulary(LIBRARY)
Ask = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ask(node: str) -> Ask:
    """Ask node to open files."""

    def run(*asked: dict[str, Any]) -> list[dict[str, Any]]:
        done = subprocess.run(
            [node, ROOT / "tests/js/gguf.mjs"],
            input=json.dumps(asked, default=str),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def blocks(kind: GGMLQuantizationType, rows: int, columns: int, seed: int) -> np.ndarray:
    """Return random blocks: every bit is drawn, again where a scale is no number."""
    rng = np.random.default_rng(seed)
    numbers, nbytes = GGML_QUANT_SIZES[kind]
    drawn = rng.integers(256, size=(rows * columns // numbers, nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        while len(bad := np.flatnonzero(~np.isfinite(gguf.dequantize(drawn, kind)).all(axis=1))):
            drawn[bad] = rng.integers(256, size=(len(bad), nbytes), dtype=np.uint8)
    return drawn.reshape(rows, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_block_is_bit_by_bit_what_gguf_makes_of_it(tmp_path: Path, ask: Ask, kind: str) -> None:
    number = GGMLQuantizationType[kind]
    raw = blocks(number, 96, 512, seed=KINDS.index(kind))
    # The product is asked of numbers like those of a model where gguf can write them: drawn ones reach 1e38.
    usual = np.random.default_rng(1).standard_normal((96, 512)).astype(np.float32)
    small = raw if kind.endswith("K") else gguf.quantize(usual, number)
    tensors = {"blk.0.ffn_up.weight": (raw, number), "blk.0.ffn_gate.weight": (small, number)}
    model = tiny(**SIZES | {"hidden_size": 512, "intermediate_size": 96})
    path = write(tmp_path / "m.gguf", model, metadata=WORDS, tensors=tensors)
    x = np.random.default_rng(2).standard_normal((3, 512)).astype(np.float32)
    up, gate = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("up", "gate"))
    (got,) = ask({"file": path, "tensors": [up], "times": {gate: x.ravel().tolist()}})
    wanted = gguf.dequantize(raw, number).astype(np.float32)
    assert got["tensors"][0]["shape"] == list(wanted.shape)
    assert np.array_equal(np.array(got["tensors"][0]["numbers"], np.float32), wanted.ravel())
    wide = gguf.dequantize(small, number).astype(np.float64)
    sums, most = x @ wide.T, np.abs(x) @ np.abs(wide).T
    assert np.all(np.abs(np.reshape(got["times"][0], sums.shape) - sums) <= 1e-7 * most)


QWEN3 = {"kind": QKNormConfig, "tied": True}


@pytest.mark.parametrize(
    "changed", [{}, {"qkv_bias": True}, {"eos_ids": (1, 5, 6), "rope_theta": 5e5}, QWEN3, SMOLLM3], ids=str
)
def test_config_and_weights_are_those_of_python(tmp_path: Path, ask: Ask, changed: dict[str, Any]) -> None:
    ends = {
        f"tokenizer.ggml.{end}_token_id": i for end, i in zip(("eos", "eot", "eom"), (1, 5, 6), strict=True)
    }
    message = WORDS | {"general.name": "A model"} | (ends if "eos_ids" in changed else {})
    path = write(tmp_path / "m.gguf", tiny(**SIZES, **changed), GGMLQuantizationType.Q8_0, message)
    model = load(path)
    state = model.state_dict()
    if model.config.tied:
        del state["lm_head.weight"]
    names = [name if name == "lm_head.weight" else f"model.{name}" for name in state]
    (got,) = ask({"file": path, "tensors": names})
    for tensor, wanted in zip(got["tensors"], state.values(), strict=True):
        assert tensor["shape"] == list(wanted.shape)
        assert tensor["numbers"] == wanted.ravel().tolist()
    assert in_python(got["config"]) == vars(model.config)
    assert got["config"]["qkNorm"] == isinstance(model.config, QKNormConfig)
    assert (got["name"], got["bytes"]) == ("A model", path.stat().st_size)


def in_python(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config with Python's names: nLayers is n_layers."""

    def renamed(message: dict[str, Any]) -> dict[str, Any]:
        return {re.sub("[A-Z]", lambda at: f"_{at[0].lower()}", key): x for key, x in message.items()}

    named = renamed(config)
    scaling = named["rope_scaling"] and Llama3Scaling(**renamed(named["rope_scaling"]))
    del named["qk_norm"]  # Python's is another class
    nope_layers = tuple(named.pop("nope_layers"))
    named |= {"nope_layers": nope_layers} if nope_layers else {}
    return named | {"eos_ids": tuple(named["eos_ids"]), "rope_scaling": scaling}


@pytest.mark.parametrize(
    "changed",
    [{"n_kv_heads": 4}, {"n_kv_heads": 1, "rope_theta": 100.0}, {"qkv_bias": True}, QWEN3, SMOLLM3],
    ids=str,
)
def test_logits_are_those_of_python(tmp_path: Path, node: str, changed: dict[str, Any]) -> None:
    path = write(tmp_path / "m.gguf", tiny(**SIZES | changed), metadata=WORDS)
    ids = torch.randint(0, 330, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    check_logits(
        node, path, load(path), [[ids], [ids[:9], ids[9:10], 4, ids[20:37], *([i] for i in ids[:10])]]
    )


def test_llama3_scaling_is_read_back(tmp_path: Path, ask: Ask) -> None:
    scaling = Llama3Scaling(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=8192)
    model = tiny(**SIZES, rope_theta=500_000.0)
    kept = factors(model, scaling)
    files = {"right": kept, "other": kept * np.linspace(1, 2, 12, dtype=np.float32), "short": kept[:4]}
    for name, result in files.items():
        write(tmp_path / name, model, metadata=WORDS, tensors={"rope_freqs.weight": result})
    right, *wrong = ask(*({"file": tmp_path / name} for name in files))
    assert in_python(right["config"])["rope_scaling"] == scaling
    for message in wrong:
        assert "rope_freqs.weight is not that of Llama 3.1" in message["failed"]


def written(folder: Path, number: int, changed: dict[str, Any]) -> Path:
    """Write a file; what is changed is a key of the metadata, one of the tokenizer, or a tensor."""
    tensors = {key: x for key, x in changed.items() if key.endswith((".weight", ".bias"))}
    keys = {key: x for key, x in changed.items() if key not in tensors}
    keys = {key if "." in key else f"tokenizer.ggml.{key}": x for key, x in keys.items()}
    return write(folder / f"{number}.gguf", tiny(**SIZES), metadata=WORDS | keys, tensors=tensors)


NAN = float("nan")
Q2_K = (blocks(GGMLQuantizationType.Q2_K, 160, 256, 0), GGMLQuantizationType.Q2_K)
BASE, EPS = "llama.rope.freq_base", "llama.attention.layer_norm_rms_epsilon"
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"general.architecture": "qwen3moe"}, "architecture is “qwen3moe”; expected one of llama, qwen2"),
    ({EPS: ...}, f"{EPS} is missing; expected a number from 1e-12 to 0.01"),
    ({BASE: NAN}, f"{BASE} is NaN; expected a number from 10 to 1,000,000,000,000"),
    ({"llama.embedding_length": ...}, "llama.embedding_length is missing; expected a whole number over 0"),
    ({"llama.attention.head_count_kv": [2, 2, 1]}, "attention.head_count_kv is [2, 2, 1]; expected a whole"),
    ({"llama.attention.head_count_kv": 3}, "4 heads of 24 numbers on 3 KV heads"),
    ({"llama.rope.dimension_count": 8}, "llama.rope.dimension_count is 8; expected 24"),
    ({"llama.block_count": 1.5}, "llama.block_count is 1.5; expected a whole number over 0"),
    ({"llama.attention.scale": 1.0}, "llama.attention.scale is 1, which is not supported; expected 0"),
    ({"llama.rope.scaling.type": "yarn"}, "scaling.type is “yarn”, which is not supported; expected none"),
    ({"llama.expert_count": 8}, "llama.expert_count is 8, which is not supported; expected 0"),
    ({"llama.logit_scale": 0.5}, "llama.logit_scale is 0.5, which is not supported; expected 1, or no"),
    ({"eos_token_id": 330}, "tokenizer.ggml.eos_token_id is 330; expected a token's id, 0 to 329"),
    ({"split.count": 2}, "it is one of 2 parts; expected a model in one file"),
    ({"blk.0.ffn_up.weight": Q2_K}, "of kind Q2_K, which is not supported; expected one of F32"),
    ({"layers.0.q_proj.weight": ONES}, "layers.0.q_proj.weight; expected only those of a llama of 3"),
    ({"blk.0.attn_q.weight": None}, "blk.0.attn_q.weight is missing; expected one of shape (96, 64)"),
    ({"blk.1.ffn_norm.weight": ONES[0, :32]}, "blk.1.ffn_norm.weight is of shape (32); expected (64)"),
    ({"blk.0.ffn_up.weight": np.full((160, 64), NAN, np.float32)}, "blk.0.ffn_up.weight holds NaN or inf"),
    ({"model": "llama"}, "tokenizer.ggml.model is “llama”; expected gpt2, a tokenizer of byte-level BPE"),
    ({"pre": "tekken"}, "how a text is cut into words, is “tekken”; expected gpt-2, smollm"),
    ({"merges": ["x y"]}, "tokenizer.ggml.merges joins “x y”; expected a token of"),
]


def test_refused_by_name(tmp_path: Path, ask: Ask) -> None:
    files = [written(tmp_path, number, changed) for number, (changed, _) in enumerate(REFUSED)]
    for got, (changed, message) in zip(ask(*({"file": file} for file in files)), REFUSED, strict=True):
        assert message in got["failed"], changed
        assert "Fetch it again if it may be damaged or cut off, or take another" in got["failed"]


def test_what_a_file_may_leave_out(tmp_path: Path, ask: Ask) -> None:
    left = "vocab_size attention.head_count_kv attention.key_length rope.freq_base".split()
    more: dict[str, Any] = {f"llama.{key}": ... for key in left} | {"general.alignment": 64}
    more |= {"llama.rope.scaling.type": "none", "llama.expert_count": 0, "llama.attention.sliding_window": 16}
    model = tiny(**SIZES | {"n_heads": 2, "head_dim": 32})
    path = write(tmp_path / "m.gguf", model, metadata=WORDS | more)
    (got,) = ask({"file": path})
    assert in_python(got["config"]) == vars(load(path, max_seq_len=16).config)


def test_neutral_metadata_change_nothing(tmp_path: Path, ask: Ask) -> None:
    path = write(
        tmp_path / "m.gguf", tiny(**SIZES), metadata=WORDS | {f"llama.{k}": x for k, x in NEUTRAL.items()}
    )
    (got,) = ask({"file": path})
    assert in_python(got["config"]) == vars(load(path).config)


def test_cut_off_damaged_another_file_or_too_large(tmp_path: Path, ask: Ask) -> None:
    """Each tensor begins where the one before it ends."""
    whole = write(tmp_path / "m.gguf", tiny(**SIZES), metadata=WORDS).read_bytes()
    cases = [(whole[:n], f"it has {n} bytes; expected at least 24, the beginning") for n in (0, 3, 23)]
    cases += [
        (whole[:2000], "or further; expected at most byte 2,000, where the file ends"),
        (whole[:-40], f"bytes; expected {len(whole):,}, where its"),
        (whole + bytes(32), ", where its last tensor ends"),
        (b"GGML" + bytes(60), 'expected "GGUF": it is a file of another kind'),
        (b"GGUF\1" + bytes(60), "its GGUF is of version 1; expected 2 or 3"),
    ]
    files = [tmp_path / str(number) for number in range(len(cases))]
    for file, (data, _) in zip(files, cases, strict=True):
        file.write_bytes(data)
    for got, (_, message) in zip(ask(*({"file": file} for file in files)), cases, strict=True):
        assert got["failed"].startswith("The GGUF file cannot be read: ")
        assert message in got["failed"]
    large, fits = ask(
        *({"file": tmp_path / "m.gguf", "memory": 2 * size / 2**30} for size in (len(whole) - 1, len(whole)))
    )
    assert f"it has {len(whole):,} bytes; expected at most {len(whole) - 1:,}, half of" in large["failed"]
    assert "failed" not in fits


# Tokens.

PIECES = "  ¦\n\n\t¦\r\n¦\u3000¦\u0085¦\ufeff¦ 3.14¦1,000¦<|end|>¦<|begin|¦don't¦I'LL¦'\u017f".split("¦")
PIECES += "x\u0345¦e\u0301¦½²¦٣٤¦ nice weather¦ the¦\U0001f469\u200d\U0001f680¦東京¦शहर¦مدينة¦도시".split("¦")


def texts(n: int, letters: int = 0x1FAFF) -> list[str]:
    """Return texts drawn of pieces that are hard to cut, and of any letters."""
    drawn = random.Random(n)

    def letter() -> str:
        return chr(drawn.choice([drawn.randrange(32, 0x250), drawn.randrange(32, letters)]))

    def piece() -> str:
        return drawn.choice(PIECES) if drawn.random() < 0.6 else letter() + letter()

    result = ["".join(piece() for _ in range(drawn.randrange(12))) for _ in range(n)]
    return [text.encode("utf-8", "ignore").decode() for text in result]  # half of a pair is no letter


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "smaug-bpe", "qwen2"])
def test_tokens_are_those_of_python(tmp_path: Path, ask: Ask, pre: str) -> None:
    message = {key: WORDS[f"tokenizer.ggml.{key}"] for key in ("tokens", "token_type", "merges")}
    message["tokens"] = [*message["tokens"], "zqzq", "<min", "<mine>", "¿d"]  # the last: half of ſ, and a d
    message["token_type"], message["merges"] = (
        [*message["token_type"], 1, 4, 4, 1],
        [*message["merges"], "¿ d"],
    )
    more = {"pre": pre, "add_eos_token": pre == "qwen2"}
    path = written(tmp_path, 0, more | message)
    cut = [*TEXTS, *texts(1000), "", "zqzq<mine>zqzq", "nice'\u017fd"]
    tokenizer = load_tokenizer(path)
    every = list(range(tokenizer.vocab_size))
    mixed = [random.Random(n).choices(every, k=n) for n in range(40)] + [*map(tokenizer.encode, cut)]
    (got,) = ask({"file": path, "texts": cut, "ids": every, "streams": mixed})
    for text, ids in zip(cut, got["texts"], strict=True):
        assert ids == tokenizer.encode(text), ascii(text)
    parts = [shown != word for shown, word in zip(got["ids"], tokenizer.words(every), strict=True)]
    assert parts == ["\ufffd" in word for word in tokenizer.words(every)], "what is a part of a letter"
    assert got["ids"][tokenizer.vocabulary["æ"]] == "<0xE6>"
    for tokens, pieces in zip(mixed, got["streams"], strict=True):
        assert len(pieces) == len(tokens)
        assert "".join(pieces) == tokenizer.decode(tokens)


def test_what_comes_out_is_one_text_with_what_stands_before(tmp_path: Path, node: str) -> None:
    """A random model says parts of letters: together they are what Python makes of them."""
    path = written(tmp_path, 0, {})
    tokenizer = load_tokenizer(path)
    ends = []
    for seed in range(8):
        settings = {"temperature": 3, "seed": seed}
        before = tokenizer.encode("nice 東")[:-1]  # and half a letter
        (*passes, written_) = answers(
            node, path, [WRITE | {"tokens": before, "steps": 9, "settings": settings}], "pass", "written"
        )
        out = written_["tokens"]
        shown = "".join(one["said"]["text"] for one in passes)
        whole = tokenizer.decode(before + out)
        assert whole.endswith(shown)
        assert whole.removesuffix(shown) == "nice "
        ends.append(whole[-1] == "\ufffd")
    assert {*ends} == {True, False}


def test_a_letter_that_no_piece_has(tmp_path: Path, ask: Ask) -> None:
    message = [token if token != "x" else "~x~" for token in WORDS["tokenizer.ggml.tokens"]]
    path = written(tmp_path, 0, {"tokens": message, "merges": ["a t"]})
    (got,) = ask({"file": path, "texts": ["a xy"]})
    assert "“ xy” has a character that the model does not know" in got["failed"]


QUESTION = "What is 3 + 4 in Ελλάδα?"
CHATS = {
    "<|im_start|>system\n" * 14_000 + "'": None,  # 270 kB, in which none of them ends
    "{{ '<|im_start|>system\n' + system }}{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}": "Be brief.",
    "{{ '<|im_start|>system\\nSay “yes”.<|im_end|>\\n' }}": "Say “yes”.",
    "{{ '<|im_start|>' + message.role }}": None,
}


def test_a_chat(tmp_path: Path, node: str) -> None:
    wordy = f"'<|im_start|>system\n{'x' * 4001}<|im_end|>'"
    templates = [*CHATS, wordy, "[INST] {{ message }} [/INST]"]
    files = [written(tmp_path, n, {"tokenizer.chat_template": x}) for n, x in enumerate(templates)]
    chat = {"do": "tokenize", "text": QUESTION, "chat": True}
    message = [answers(node, file, [chat])[-1] for file in files]
    *good, long, other = message
    for got, file, system in zip(good, files, CHATS.values(), strict=False):
        before = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
        prompt = f"{before}<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
        assert got["tokens"] == load_tokenizer(file).encode(prompt)
    assert "puts 4,001 characters before each question; expected at most 4,000" in long["say"]
    assert "no chat template, or one of another kind; expected ChatML" in other["say"]


# The published model.

PROMPTS = [
    "Once upon a time there was a little",
    "The capital of France is a city called",
    "To make bread you need flour, water and",
]


@pytest.mark.pypi
def test_the_published_model_says_what_it_says_in_python(found: Path, node: str, ask: Ask) -> None:
    model, tokenizer = load(found), load_tokenizer(found)
    drawn = [text for text in texts(1000, 0x1000) if readable(tokenizer, text)]
    (got,) = ask({"file": found, "texts": drawn})
    assert len(drawn) > 300
    for text, ids in zip(drawn, got["texts"], strict=True):
        assert ids == tokenizer.encode(text), ascii(text)
    prompts = [*PROMPTS, chat_prompt(tokenizer, [{"role": "user", "content": QUESTION}])]
    asks: list[dict[str, Any]] = [{"do": "tokenize", "text": prompt} for prompt in PROMPTS]
    asks.append({"do": "tokenize", "text": QUESTION, "chat": True})
    asks += [WRITE | {"steps": 8, "tokens": tokenizer.encode(prompt)} for prompt in prompts]
    message = answers(node, found, asks)
    for prompt, cut in zip(prompts, [answer for answer in message if answer["op"] == "tokens"], strict=True):
        ids = tokenizer.encode(prompt)
        assert (cut["tokens"], "".join(cut["texts"])) == (ids, tokenizer.decode(ids))
    for prompt, sentence in zip(
        prompts, [answer for answer in message if answer["op"] == "written"], strict=True
    ):
        assert sentence["tokens"] == list(generate(model, tokenizer.encode(prompt), 8))


def readable(tokenizer: Tokenizer, text: str) -> bool:
    """Whether the vocabulary has all letters of a text."""
    try:
        tokenizer.check_in_vocabulary(text)
    except ValueError:
        return False
    return True
