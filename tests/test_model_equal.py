"""Our model against `transformers`, loaded from the folders that it saves, and the other way round."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.utils import logging

from helpers.model.cache import Cache, GrowingCache, StaticCache
from helpers.model.load import load, save
from helpers.model.transformer import RMSNorm, Transformer
from tests.tiny import enlarge, in_passes, tiny, tokens

logging.set_verbosity_error()
torch.set_num_threads(1)

# In one pass the two do the same operations: the logits, up to 8 in size, agree to the last bit here.
# Split into passes, sums run in another order: float32 rounds each by 6e-8 of its size, and a few hundred
# of them lie one behind another. Seen over 30 models: 7e-6. A wrong mask, position or head moves logits by
# 0.1 and more.
BOUND = 1e-4

BASE: dict[str, Any] = {
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "hidden_size": 30,
    "intermediate_size": 22,
    "vocab_size": 19,
    "max_position_embeddings": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "head_dim": 8,
    "rms_norm_eps": 1e-3,  # no class's default
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
LATENT = {
    "kv_lora_rank": 5,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "q_lora_rank": None,
}
LATENT |= {"first_k_dense_replace": 3, "rope_interleave": False, "num_key_value_heads": 6, "head_dim": 4}
CONFIGS = {
    "llama, MHA": LlamaConfig(**BASE, num_key_value_heads=6),
    "llama, MQA, llama3 rope": LlamaConfig(**BASE, num_key_value_heads=1, rope_parameters=LLAMA3),
    "llama, GQA, llama3 rope, tied": LlamaConfig(
        **BASE, num_key_value_heads=2, rope_parameters=LLAMA3, tie_word_embeddings=True
    ),
    "llama, head_dim = hidden / heads": LlamaConfig(
        **(BASE | {"hidden_size": 24, "head_dim": None}), num_key_value_heads=3
    ),
    "mistral, GQA": MistralConfig(**BASE, num_key_value_heads=3, sliding_window=None),
    "mistral, MQA, wide window": MistralConfig(**BASE, num_key_value_heads=1, sliding_window=40),
    "qwen2, GQA, biases, tied": Qwen2Config(**BASE, num_key_value_heads=3, tie_word_embeddings=True),
    "qwen3, GQA": Qwen3Config(**BASE, num_key_value_heads=3),
    "qwen3, MQA, tied": Qwen3Config(**BASE, num_key_value_heads=1, tie_word_embeddings=True),
    "smollm3, GQA, tied": SmolLM3Config(**BASE, num_key_value_heads=3, no_rope_layers=[1, 0, 1]),
    "smollm3, MQA, llama3 rope": SmolLM3Config(
        **BASE,
        num_key_value_heads=1,
        no_rope_layer_interval=2,
        rope_parameters=LLAMA3,
        tie_word_embeddings=False,
    ),
    "deepseek-v3, dense": DeepseekV3Config(**(BASE | LATENT)),
    "deepseek-v3, dense, tied, llama3 rope": DeepseekV3Config(
        **(BASE | LATENT), tie_word_embeddings=True, rope_parameters=LLAMA3
    ),
}
SPLITS = {"prefill": [23], "chunks": [7, 1, 10, 5], "token by token": [1] * 23}


@functools.cache
def pair(name: str) -> tuple[Any, Transformer]:
    """A random model of `transformers`, and this project's model loaded from the folder that it saved."""
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(CONFIGS[name]).eval()
    enlarge(theirs)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        return theirs, load(folder)


@pytest.mark.parametrize("cache", [GrowingCache, StaticCache])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", CONFIGS)
def test_equal_to_transformers(name: str, split: str, cache: type[Cache]) -> None:
    theirs, ours = pair(name)
    ids = tokens(2, 23)
    with torch.no_grad():
        expected = theirs(ids).logits
    got = in_passes(ours, ids, SPLITS[split], cache(ours.config, batch=2))
    assert got.shape == expected.shape == (2, 23, 19)
    assert expected.abs().max() > 1, "logits near 0 would agree whatever the model does"
    torch.testing.assert_close(got, expected, rtol=0, atol=BOUND)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_rms_norm_is_bitwise_equal(dtype: torch.dtype) -> None:
    """Normed in float32, cast, and only then scaled: the other way round a narrow type rounds otherwise."""
    ours, theirs = RMSNorm(30, 1e-3), LlamaRMSNorm(30, 1e-3)
    enlarge(ours)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(50, 30, dtype=dtype)
    assert torch.equal(ours.to(dtype)(x), theirs.to(dtype)(x))


@pytest.mark.parametrize("name", CONFIGS)
def test_equal_losses_give_equal_gradients(name: str) -> None:
    """What training would do: the gradient of every parameter, relative to the largest."""
    theirs, ours = pair(name)
    ids = tokens(2, 11)
    gradients = []
    for model in (theirs, ours):
        out = model(ids)
        logits = out if isinstance(out, torch.Tensor) else out.logits
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
        found = {name.removeprefix("model."): p.grad for name, p in model.named_parameters()}
        gradients.append({name: grad for name, grad in found.items() if grad is not None})
        model.zero_grad()
    expected, got = gradients
    assert set(got) == set(expected)
    for name, grad in got.items():
        torch.testing.assert_close(
            grad, expected[name], rtol=0, atol=BOUND * float(expected[name].abs().max())
        )


@pytest.mark.parametrize("name", CONFIGS)
def test_saved_checkpoint_opens_in_transformers(name: str, tmp_path: Path) -> None:
    """Each norm's epsilon is the same, which moves no logit where the numbers are large."""
    theirs, ours = pair(name)
    epsilons = [m.variance_epsilon for m in theirs.modules() if hasattr(m, "variance_epsilon")]
    assert sorted(m.eps for m in ours.modules() if isinstance(m, RMSNorm)) == sorted(epsilons)
    save(ours, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors"}
    open_it: Any = AutoModelForCausalLM.from_pretrained
    opened, report = open_it(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    ids = tokens(2, 23)
    with torch.no_grad():
        torch.testing.assert_close(opened.eval()(ids).logits, theirs(ids).logits, rtol=0, atol=0)
    assert load(tmp_path).config == ours.config


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_save_and_load_are_lossless(dtype: torch.dtype, tmp_path: Path) -> None:
    model = tiny(dtype=dtype, hidden_size=36, qkv_bias=True, eos_ids=(3, 7))
    save(model, tmp_path)
    loaded = load(tmp_path)
    assert loaded.config == model.config
    assert list(loaded.state_dict()) == list(model.state_dict())
    for name, tensor in model.state_dict().items():
        assert loaded.state_dict()[name].dtype == dtype
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] in str(dtype)


@pytest.mark.parametrize("name", [name for name in CONFIGS if "tied" in name])
def test_sharded_checkpoint_loads(name: str, tmp_path: Path) -> None:
    theirs, ours = pair(name)
    theirs.save_pretrained(tmp_path, max_shard_size="9KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    loaded = load(tmp_path)
    assert all(torch.equal(x, loaded.state_dict()[name]) for name, x in ours.state_dict().items())
    assert (loaded.lm_head.weight is loaded.embed_tokens.weight) == loaded.config.tied
