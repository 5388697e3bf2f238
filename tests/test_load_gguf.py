"""GGUF files: the same model as from safetensors and in `transformers`, or refused; their tokenizers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
import torch
from gguf import GGMLQuantizationType
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Tokenizer

from helpers.model.attention import rope_frequencies
from helpers.model.config import Llama3Scaling, NoPEConfig, QKNormConfig
from helpers.model.load import CheckpointError, chat_prompt, load, load_tokenizer, save
from helpers.model.transformer import Transformer
from helpers.tokenizer import EOS, Tokenizer
from tests.gguf_file import write
from tests.tiny import tiny

torch.set_num_threads(1)

# Rows of quantised tensors are cut into blocks of 32; no two sizes are equal.
SIZES: dict[str, Any] = {"hidden_size": 64, "head_dim": 24, "n_heads": 4, "n_kv_heads": 2}
SIZES |= {"intermediate_size": 160, "norm_eps": 2**-17}
ONES = np.ones((96, 64), np.float32)
LENGTHS = ("attention.key_length", "attention.value_length", "rope.dimension_count")
OTHER: dict[str, Any] = {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "expert_count": 8}
OTHER |= {
    "attention.causal": False,
    "logit_scale": 0.5,
    "attention.scale": 1.0,
    "feed_forward_length": [160, 160, 96],
}
# What a file may say for nothing, as llama.cpp runs it.
NEUTRAL: dict[str, Any] = {
    "attention.head_count_kv": [2] * 3,
    "attention.head_count": [4] * 3,
    "feed_forward_length": [160] * 3,
    "rope.scaling.type": "linear",
    "rope.scaling.factor": 1.0,
    "rope.scale_linear": 0.0,
    "rope.scaling.original_context_length": 16,
    "rope.dimension_sections": [0] * 4,
    "logit_scale": 1.0,
    "pooling_type": 0,
    "attention.clamp_kqv": 0.0,
    "attention.sliding_window": 0,
    "attention.causal": True,
    "use_parallel_residual": False,
}
HUGE = dict.fromkeys([f"llama.{key}" for key in LENGTHS], 2 * 10**9)
BASE, EPS = "rope.freq_base", "attention.layer_norm_rms_epsilon"
ONE_BY_ONE = {"token_embd.weight": 2, "blk.1.attn_norm.weight": 1, "output.weight": 2}  # and their axes

SMOLLM3: dict[str, Any] = {"kind": NoPEConfig, "n_layers": 9, "nope_layers": (3, 7), "tied": True}
KINDS = [GGMLQuantizationType[name] for name in "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1".split()]


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        *((kind, {}) for kind in KINDS),
        (KINDS[0], {"tied": True}),
        (KINDS[3], {"qkv_bias": True, "tied": True}),
        (KINDS[3], {"kind": QKNormConfig}),
        (KINDS[3], SMOLLM3),
    ],
)
def test_every_weight_is_as_in_the_model_that_was_written(
    tmp_path: Path, kind: GGMLQuantizationType, changed: dict[str, Any]
) -> None:
    model = tiny(**SIZES, **changed)
    for parameter in model.parameters():
        if parameter.ndim == 2:  # quantised row by row: the order of rows makes no difference
            raw = gguf.quantize(parameter.detach().numpy(), kind)
            parameter.data = torch.from_numpy(np.array(gguf.dequantize(raw, kind), dtype=np.float32))
    loaded = load(write(tmp_path / "m.gguf", model, kind))
    save(model, tmp_path / "folder")
    assert loaded.config == load(tmp_path / "folder").config == model.config
    for name, tensor in load(tmp_path / "folder").state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert (loaded.lm_head.weight is loaded.embed_tokens.weight) == model.config.tied
    assert load(tmp_path / "m.gguf", dtype=torch.bfloat16).norm.weight.dtype == torch.bfloat16


@pytest.mark.parametrize(
    "changed", [{"tied": True}, {"qkv_bias": True, "head_dim": 16}, {"kind": QKNormConfig, "head_dim": 128}]
)
def test_equal_to_transformers(tmp_path: Path, changed: dict[str, Any]) -> None:
    """The file has a vocabulary of its own size: transformers asks for one."""
    library = byte_level()
    V = library.get_vocab_size()
    model = tiny(**(SIZES | changed), vocab_size=V)
    write(tmp_path / "m.gguf", model, GGMLQuantizationType.Q8_0, vocabulary(library))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="m.gguf", dtype=torch.float32)
    ids = torch.randint(0, V, (2, 23))
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path)(ids), theirs(ids).logits, rtol=0, atol=1e-4)


def factors(model: Transformer, scaling: Llama3Scaling) -> np.ndarray:
    """Return what llama.cpp's converter stores of a scaling: a factor for each pair of numbers."""
    turns = scaling.original_max_seq_len * rope_frequencies(model.config).numpy() / (2 * np.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling.factor + smooth)).astype(np.float32)


def test_llama3_scaling_is_read_back(tmp_path: Path) -> None:
    scaling = Llama3Scaling(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=8192)
    model = tiny(**SIZES, rope_theta=500_000.0)
    kept = factors(model, scaling)
    assert len(set(kept)) > 2, "a pair is blended"
    loaded = load(write(tmp_path / "m.gguf", model, tensors={"rope_freqs.weight": kept}))
    assert loaded.config.rope_scaling == scaling
    for wrong in (kept * np.linspace(1, 2, 12, dtype=np.float32), kept[:4]):
        write(tmp_path / "m.gguf", model, tensors={"rope_freqs.weight": wrong})
        with pytest.raises(CheckpointError, match=r"rope_freqs.weight is not that of Llama 3\.1"):
            load(tmp_path)


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ({"general.architecture": "gemma3"}, {}, "architecture 'gemma3' is not supported; expected one of"),
        ({f"llama.{EPS}": ...}, {}, f"{EPS} is missing from its"),
        ({f"llama.{BASE}": float("inf")}, {}, r"rope_theta is inf; expected 10 to 1e\+12: fetch"),
        ({f"llama.{EPS}": 3.0}, {}, "rms_norm_eps is 3.0; expected 1e-12 to 0.01: fetch the file again"),
        ({"llama.block_count": 10**5}, {}, "parameters; expected .*, as many as are stored"),
        (HUGE, {"rope_freqs.weight": ONES[0]}, "rope_freqs.weight is not that of Llama 3.1"),
        *(({f"llama.{key}": 8}, {}, f"{key} is 8; expected 24") for key in LENGTHS[1:]),
        *(({f"llama.{key}": x}, {}, re.escape(f"llama.{key} {x!r} is not supp")) for key, x in OTHER.items()),
        ({"llama.attention.sliding_window": 16}, {}, "sliding_window 16 is shorter than the context 40"),
        ({"split.count": 2}, {}, "is one of 2 parts"),
        ({}, {"output_norm.weight": np.ones(64, np.int32)}, "output_norm.weight: Dequantization for I32"),
        ({}, {"layers.0.q_proj.weight": ONES}, "layers.0.q_proj.weight is unknown; expected"),
    ],
    ids=str,
)
def test_refused_by_name(
    tmp_path: Path, metadata: dict[str, Any], tensors: dict[str, np.ndarray | None], message: str
) -> None:
    path = write(tmp_path / "m.gguf", tiny(**SIZES), metadata=metadata, tensors=tensors)
    with pytest.raises(CheckpointError, match=message):
        load(path)


def test_a_file_that_is_cut_off_or_another_or_has_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    """Each tensor begins where the one before it ends; no list is longer than the file, nor tried to be."""
    lists = {"a.list": [1, 2, 3], "a.texts": ["x", "yz"]}
    whole = write(tmp_path / "m.gguf", tiny(**SIZES), metadata=lists).read_bytes()
    damages = [(whole[:n], "") for n in (0, 6, 23, 2000, -40)]
    damages += [(whole + bytes(32), "it has .* bytes; expected .*, where its last tensor ends")]
    damages += [(start, "it begins with") for start in (b"GGUF\1\0\0\0", b"GGML\3\0\0\0", b"GGUF\0\0\0\3")]
    for content, message in damages:
        (tmp_path / "m.gguf").write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"m\.gguf is no GGUF file, damaged or cut off: {message}"):
            load(tmp_path)
    after = {name: whole.rindex(name.encode()) + len(name) for name in (*lists, *ONE_BY_ONE)}
    places = [(after[name] + 8, 8) for name in lists]  # behind two kinds: how long the list is
    places += [(after[name] + 4 + 8 * n, 12) for name, n in ONE_BY_ONE.items()]  # behind the shape
    for at, bit in [(at, bit) for at, nbytes in places for bit in range(8 * nbytes)]:
        damaged = bytearray(whole)
        damaged[at + bit // 8] ^= 1 << bit % 8
        (tmp_path / "m.gguf").write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"cut off|is of type \d+, which gguf does not know$"):
            load(tmp_path)


def test_what_a_file_may_leave_out_or_say_for_nothing(tmp_path: Path) -> None:
    model = tiny(**SIZES | {"n_heads": 2, "head_dim": 32}, eos_ids=(2, 5, 7))
    left = "vocab_size attention.head_count_kv attention.key_length rope.freq_base".split()
    more: dict[str, Any] = {f"llama.{key}": ... for key in left} | {"general.alignment": 64}
    more |= {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 1.0, "llama.expert_count": 0}
    more |= {f"tokenizer.ggml.{end}_token_id": i for end, i in (("eos", 2), ("eot", 5), ("eom", 7))}
    more["tokenizer.ggml.tokens"] = [str(i) for i in range(19)]
    loaded = load(write(tmp_path / "m.gguf", model, metadata=more))
    assert loaded.config == model.config
    for name, wanted in model.state_dict().items():
        assert torch.equal(loaded.get_parameter(name), wanted)


def test_neutral_metadata_change_nothing(tmp_path: Path) -> None:
    model = tiny(**SIZES)
    loaded = load(
        write(tmp_path / "m.gguf", model, metadata={f"llama.{key}": x for key, x in NEUTRAL.items()})
    )
    assert loaded.config == model.config


# Tokenizers.

SPECIAL = ["<|begin|>", "<|end|>"]
TEXTS = [
    "Today weather is so nice, don't you THINK? I'LL see.",
    " 12345  67 ½² ٣٤   \n\n\t x\r\n",
    "naïve e\u0301 東京 привет שלום \u200d\U0001f469\u200d\U0001f469 <|end|>x<|begin|>",
]


def byte_level() -> tokenizers.Tokenizer:
    """Train a small byte-level BPE."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE())
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=alphabet, special_tokens=SPECIAL, show_progress=False
    )
    library.train_from_iterator([*TEXTS, "12 34 123 1234 nice weather  \n\n"] * 9, trainer)
    return library


def vocabulary(library: tokenizers.Tokenizer, pre: str = "gpt-2") -> dict[str, Any]:
    """Return the metadata of a GGUF file with this tokenizer."""
    pieces = sorted(library.get_vocab(), key=library.get_vocab().__getitem__)
    kinds = [3 if piece in SPECIAL else 1 for piece in pieces]
    state: dict[str, Any] = {"model": "gpt2", "pre": pre, "tokens": pieces, "token_type": kinds}
    state |= {"merges": merges(library), "bos_token_id": 0, "eos_token_id": 1}
    return {f"tokenizer.ggml.{key}": value for key, value in state.items()}


def merges(library: tokenizers.Tokenizer) -> list[str]:
    return [" ".join(pair) for pair in json.loads(library.to_str())["model"]["merges"]]


def from_file(folder: Path, pre: str, **changed: Any) -> Tokenizer:
    """Write a file with a tokenizer of this kind, and load that."""
    library = byte_level()
    more = {key if "." in key else f"tokenizer.ggml.{key}": value for key, value in changed.items()}
    model = tiny(**SIZES, vocab_size=library.get_vocab_size())
    write(folder / "m.gguf", model, metadata=vocabulary(library, pre) | more)
    return load_tokenizer(folder)


def theirs_for(folder: Path, pre: str) -> Any:
    """Return the tokenizer of `transformers`, with what it leaves out where it reads a GGUF file."""
    if pre == "qwen2":  # Unicode's composed form
        library = byte_level()
        pairs: Any = [tuple(pair.split(" ")) for pair in merges(library)]
        result = Qwen2Tokenizer(vocab=library.get_vocab(), merges=pairs)
        result.add_special_tokens({"additional_special_tokens": SPECIAL})
        return result
    found = AutoTokenizer.from_pretrained(folder, gguf_file="m.gguf")
    if pre == "smollm":  # each digit by itself
        cut = tokenizers.pre_tokenizers
        found.backend_tokenizer.pre_tokenizer = cut.Sequence(
            [cut.Digits(individual_digits=True), cut.ByteLevel(add_prefix_space=False)]
        )
    return found


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe", "smaug-bpe", "qwen2"])
def test_tokens_are_those_of_transformers(tmp_path: Path, pre: str) -> None:
    ours = from_file(tmp_path, pre, add_bos_token=False)
    theirs = theirs_for(tmp_path, pre)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text)["input_ids"]
        assert pre == "qwen2" or ours.decode(ours.encode(text)) == text
    assert (ours.bos, ours.eos, ours.eos_id) == ("<|begin|>", "<|end|>", 1)


@pytest.mark.parametrize(
    ("pre", "pieces", "changed", "before", "after"),
    [
        ("gpt-2", 4, {}, [], []),
        ("llama-bpe", 1, {}, [0], []),
        ("smaug-bpe", 1, {}, [], []),
        ("gpt-2", 4, {"add_bos_token": True}, [0], []),
        ("llama-bpe", 1, {"add_bos_token": False, "add_eos_token": True}, [], [1]),
    ],
)
def test_what_the_file_asks_for_stands_around_a_text_and_a_user_s_token_is_never_cut(
    tmp_path: Path, pre: str, pieces: int, changed: dict[str, bool], before: list[int], after: list[int]
) -> None:
    """Nor is a whole word in Llama 3."""
    stored = vocabulary(byte_level())
    tokens = [*stored["tokenizer.ggml.tokens"], "zqzq", "<mine>"]
    given = {"tokens": tokens, "token_type": [*stored["tokenizer.ggml.token_type"], 1, 4]}
    bare = from_file(tmp_path, pre, **given, add_bos_token=False).encode("zqzq<mine>zqzq")
    assert (len(bare), bare[pieces]) == (2 * pieces + 1, tokens.index("<mine>"))
    assert from_file(tmp_path, pre, **given, **changed).encode("zqzq<mine>zqzq") == [*before, *bare, *after]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "llama"}, "the tokenizer 'llama' is not supported; expected 'gpt2': byte-level BPE"),
        ({"pre": "tekken"}, "the pre-tokenizer 'tekken' is not supported; expected smollm, gpt-2"),
        ({"merges": ["x y"]}, r"m\.gguf: .*`xy` out of vocabulary"),
    ],
    ids=str,
)
def test_a_tokenizer_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        from_file(tmp_path, **({"pre": "gpt-2"} | changed))


# Chats.

CHAT = "{{ bos_token }}{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}"
CHAT += "{% if add_generation_prompt %}[assistant]{{ eos_token }}{% endif %}"
MESSAGES = [{"role": "user", "content": "Is it 'nice' <now> in 東京?"}]


def test_a_chat_is_what_transformers_makes_of_it(tmp_path: Path) -> None:
    chat = {"tokenizer.chat_template": CHAT}
    tokenizer = from_file(tmp_path, "gpt-2", **chat, add_bos_token=False)
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="m.gguf")
    wanted = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert chat_prompt(tokenizer, MESSAGES) == wanted
    asked = from_file(tmp_path, "gpt-2", **chat, add_bos_token=True)
    assert asked.encode(chat_prompt(asked, MESSAGES)) == tokenizer.encode(wanted), "one beginning, not two"
    ended = from_file(tmp_path, "gpt-2", **chat, add_eos_token=True)
    assert ended.encode(chat_prompt(ended, MESSAGES)) == [*tokenizer.encode(wanted), 1]


def test_a_template_that_cannot_be_used_is_refused() -> None:
    tokenizer = Tokenizer.from_words([EOS])
    for template, message in (("", "has no chat template"), ("{{ raise_exception('no') }}", "used: no$")):
        tokenizer.chat_template = template
        with pytest.raises(CheckpointError, match=message):
            chat_prompt(tokenizer, MESSAGES)


def test_a_folder_s_tokenizer_has_the_tokens_and_ends_that_stand_beside_it(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no tokenizer\.json; expected one"):
        load_tokenizer(tmp_path)
    byte_level().save(str(tmp_path / "tokenizer.json"))
    new = {"content": "<|im_end|>", "special": True, "normalized": False}
    settings = {"added_tokens_decoder": {"330": new}, "eos_token": "<|im_end|>", "bos_token": SPECIAL[0]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": "old"}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("<|im_end|>nice") == [330, *tokenizer.encode("nice")]
    assert (tokenizer.bos, tokenizer.eos, tokenizer.eos_id) == (SPECIAL[0], "<|im_end|>", 330)
    assert tokenizer.chat_template == "old"


def test_an_end_that_the_tokenizer_s_files_leave_out_is_that_of_the_model_s(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).eos is None, "no file says one"
    for name, end in (("config.json", 1), ("generation_config.json", [0, 1])):
        (tmp_path / name).write_text(json.dumps({"model_type": "of any kind", "eos_token_id": end}))
        assert load_tokenizer(tmp_path).eos == SPECIAL[end == 1]


def test_a_package_that_is_not_installed_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="transformers"):
        load_tokenizer(tmp_path)
