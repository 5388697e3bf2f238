"""Watching models of `transformers`: no logit changes, and each layer's attention and cache are recorded."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from helpers.model import shipped
from helpers.recording.hf import HFCache, attention_hook, last_token_logits, watch
from helpers.recording.model import record_model
from helpers.stepper import Stepper
from helpers.trace import Trace, compare, indices_of_ranges
from tests import oracle
from tests.tiny import enlarge

logging.set_verbosity_error()
PROMPT = [3, 5, 7, 2, 9, 4, 11, 6]
# All sizes distinct, head_dim not hidden / heads. Experts want rows of 16 bytes: sizes divisible by 4.
BASE: dict[str, Any] = {"num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3}
BASE |= {"hidden_size": 60, "head_dim": 8, "intermediate_size": 20, "vocab_size": 19, "bos_token_id": 1}
BASE |= {"max_position_embeddings": 40, "eos_token_id": None, "pad_token_id": 0}
TYPES = ["sliding_attention", "full_attention", "sliding_attention"]
WINDOWS: dict[str, Any] = {"sliding_window": 4, "layer_types": TYPES}
EXPERTS = {"moe_intermediate_size": 12, "num_experts": 5, "num_experts_per_tok": 2}
LATENT: dict[str, Any] = {"kv_lora_rank": 5, "q_lora_rank": 7, "qk_rope_head_dim": 4, "v_head_dim": 10}
LATENT |= {"qk_nope_head_dim": 8}
LATENT |= {"head_dim": 4, "num_key_value_heads": 6, "n_routed_experts": 6, "n_group": 1, "topk_group": 1}
LATENT |= EXPERTS | {"first_k_dense_replace": 1}
LINEAR: dict[str, Any] = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8}
LINEAR |= {"linear_value_head_dim": 12}
LINEAR |= {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
SHARED: dict[str, Any] = {"num_kv_shared_layers": 2, "num_hidden_layers": 4, "num_key_value_heads": 3}
SHARED |= {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 4}
SHARED |= {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 19, "global_head_dim": 16}
MODELS: dict[str, dict[str, Any]] = {
    "gemma4_text": SHARED,
    "llama": {},
    "qwen3": {},
    "gemma3_text": WINDOWS,
    "gpt_oss": WINDOWS | {"num_local_experts": 5, "num_experts_per_tok": 2},
    "deepseek_v3": LATENT,
    "deepseek_v32": LATENT | {"index_topk": 4, "index_n_heads": 2, "index_head_dim": 8},
    "gpt2": {"n_embd": 42, "n_layer": 3, "n_head": 6, "n_positions": 40, "n_inner": 20},
    "qwen3_next": EXPERTS | LINEAR | {"shared_expert_intermediate_size": 16},
}
OWN_KEYS = ("gpt2", "bloom", "mamba")  # their configs have other keys for sizes
MAMBA: dict[str, Any] = {"layers_block_type": ["mamba", "hybrid", "mamba"], "mamba_headdim": 30}
MAMBA |= {"mamba_d_state": 4, "n_mamba_heads": 4, "mamba_ngroups": 1, "adapter_rank": 3, "num_mem_blocks": 1}
MAMBA |= {"attention_head_dim": 20, "num_key_value_heads": 6}
UNSUPPORTED: dict[str, dict[str, Any]] = {
    "bloom": {"hidden_size": 12, "n_head": 3, "n_layer": 2},
    "mamba": {"hidden_size": 12, "num_hidden_layers": 2, "state_size": 3},
    "diffllama": {"num_key_value_heads": 2},
    "doge": {},
    "zamba2": MAMBA,
}


@functools.cache
def model(model_type: str) -> Any:
    settings = {"vocab_size": 19, "eos_token_id": None, "bos_token_id": 1} if model_type in OWN_KEYS else BASE
    settings = settings | (MODELS | UNSUPPORTED)[model_type]
    torch.manual_seed(0)
    hf_model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **settings))
    enlarge(hf_model)
    return hf_model.eval()


@functools.cache
def trace(model_type: str) -> Trace:
    return watch(model(model_type), None, PROMPT, max_new_tokens=5, uncached=model_type != "deepseek_v32")


def logits(model_type: str, hook: Any = None) -> torch.Tensor:
    """Return the logits of a prompt and of four decode steps after it, (5, V)."""
    hf_model = model(model_type)
    hf_model.set_attn_implementation("eager")
    cache, output = HFCache(hf_model), []
    for ids in (PROMPT, [2], [7], [3], [5]):
        if hook is None:
            output.append(last_token_logits(hf_model, ids, cache))
        else:
            with attention_hook(hf_model, hook):
                output.append(last_token_logits(hf_model, ids, cache))
    return torch.stack(output)


@pytest.mark.parametrize("model_type", MODELS)
def test_watching_changes_no_logit(model_type: str) -> None:
    """To the bit: the same functions run on the same numbers."""
    calls: list[int] = []
    assert torch.equal(logits(model_type), logits(model_type, lambda layer, *_: calls.append(layer)))
    assert len(calls) >= 5


@pytest.mark.parametrize("model_type", [name for name in MODELS if name != "deepseek_v32"])
def test_runs_with_and_without_cache_are_equal(model_type: str) -> None:
    recorded = trace(model_type)
    assert compare(recorded.only_run("cached"), recorded.only_run("uncached"), tolerance=1e-3) == "equal"
    assert len(recorded.run("cached").passes) == 5
    loaded = Trace.from_json(recorded.to_json())
    assert loaded.to_json() == recorded.to_json()
    assert Stepper(loaded, layer=0, start="decode").options["start"] == 1


@pytest.mark.parametrize("model_type", ["gemma3_text", "gpt_oss"])
def test_a_sliding_window_limits_the_entries_kept(model_type: str) -> None:
    """A window of 4: three entries stay, however many tokens were seen; layer 1 keeps all."""
    passes = trace(model_type).run("cached").passes
    kept = [[event.for_layer(layer).parts[0].kept for layer in range(3)] for event in passes]
    assert kept == [[(0, 3), (0, 8), (0, 3)], *([(3, 3), (n, n + 1), (3, 3)] for n in range(8, 12))]
    prefill, decode = (event.for_layer(0).parts[0] for event in passes[:2])
    assert [indices_of_ranges(seen) for seen in prefill.visible] == [
        [*range(max(0, n - 3), n + 1)] for n in range(8)
    ]
    assert (
        indices_of_ranges(prefill.written),
        indices_of_ranges(decode.read),
        indices_of_ranges(decode.written),
    ) == (
        [5, 6, 7],
        [5, 6, 7],
        [8],
    )
    assert [indices_of_ranges(seen) for seen in decode.visible] == [[5, 6, 7, 8]]
    whole = passes[1].parts[0]
    assert indices_of_ranges(whole.read) == [*range(8)], (
        "the part is that of layer 1, though layer 0 came first"
    )
    assert trace(model_type).model.layer_types == [name.replace("_", " ") for name in TYPES]


def test_a_layer_with_a_state_has_no_entries() -> None:
    mixed = trace("qwen3_next")
    assert mixed.layers == [0, 1, 2]
    for event in (event for run in mixed.runs for event in run.passes):
        states = [{name: x for name, x in shape.items() if x and name != "layer"} for shape in event.shapes]
        assert states[0] == states[2] == {"state": [1, 4, 8, 12], "convolution": [1, 80, 4]}
        part, counts = event.for_layer(0).parts[0], event.for_layer(0).counts
        assert (part.read, part.written, part.kept) == ([], [], (0, 0))
        assert (counts["pairs"], counts["kv_rows"], counts["products"]) == (0, 0, 0)
        assert event.for_layer(1).counts["pairs"] == sum(query + 1 for query in event.parts[0].queries)


def test_layers_that_share_entries_compute_none() -> None:
    for run in trace("gemma4_text").runs:
        for event in run.passes:
            assert [event.for_layer(layer).counts["kv_rows"] > 0 for layer in range(4)] == [
                True,
                True,
                False,
                False,
            ]
            assert event.for_layer(2).parts[0].visible == event.for_layer(0).parts[0].visible
            part = event.for_layer(3).parts[0]
            assert (part.written, part.kept) == ([], (0, 0))
            assert event.shapes[3]["k"] == event.shapes[1]["k"] != event.shapes[0]["k"]


def test_ids_may_have_any_form() -> None:
    hf_model, ids = model("llama"), torch.tensor([PROMPT])
    for prompt in (ids, ids[0], {"input_ids": ids}, {"input_ids": PROMPT}):
        assert (
            watch(hf_model, None, prompt, max_new_tokens=1).sequences
            == watch(hf_model, None, PROMPT, max_new_tokens=1).sequences
        )


def test_sizes_of_grouped_heads_latents_and_chosen_keys() -> None:
    sizes = [trace(model_type).model for model_type in ("qwen3", "deepseek_v3", "gpt2")]
    assert [(m.n_heads, m.n_kv_heads, m.k_dim, m.v_dim) for m in sizes] == [
        (6, 3, 8, 8),
        (6, 6, 12, 10),
        (6, 6, 7, 7),
    ]
    picked = {event.for_layer(2).counts["pairs"] for event in trace("deepseek_v32").run("cached").passes[1:]}
    assert picked == {4}, "a token attends to four of its entries"


def test_the_attention_implementation_is_restored() -> None:
    """Even after an error; and the hook is not called afterwards."""
    hf_model = model("llama")
    hf_model.set_attn_implementation("sdpa")
    before = last_token_logits(hf_model, PROMPT, None)

    def fail(*_: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError), attention_hook(hf_model, fail):
        last_token_logits(hf_model, PROMPT, None)
    assert hf_model.config._attn_implementation == "sdpa"
    assert torch.equal(last_token_logits(hf_model, PROMPT, None), before)
    hf_model.set_attn_implementation("eager")
    assert torch.allclose(
        last_token_logits(hf_model, PROMPT, None), before, atol=1e-4
    )  # `fail` is not called


def test_watch_and_record_model_give_equal_traces(tmp_path: Any) -> None:
    """For the shipped model: passes, masks, weights and logits."""
    our_model, tokenizer = shipped.load_shipped()
    hf_model = AutoModelForCausalLM.from_pretrained(shipped.FOLDER)
    text = "Mia writes from Oslo ."
    recorded = record_model(our_model, text, tokenizer, max_new_tokens=4, training=False)
    watched = watch(hf_model, tokenizer, text, max_new_tokens=4, uncached=True)
    assert compare(recorded, watched, tolerance=1e-3) == "equal"
    assert oracle.work(recorded) == oracle.work(watched)
    other = watch(hf_model, tokenizer, text, reply=tokenizer.encode("It was"), layers=[2], heads=[1, 3])
    assert [token.text for token in other.sequences[0].tokens[-2:]] == ["It", "was"]
    assert other.recorded == [(2, 1), (2, 3)]


@pytest.mark.parametrize(
    ("model_type", "settings", "message"),
    [
        ("bloom", {}, "BloomForCausalLM cannot be watched: it does not call attention through the Attention"),
        ("mamba", {}, "MambaForCausalLM cannot be watched: it does not call"),
        (
            "diffllama",
            {},
            "DiffLlamaForCausalLM cannot be watched: attention was recorded 6 times; expected o",
        ),
        (
            "doge",
            {},
            "DogeForCausalLM cannot be watched: got a mask of shape (1, 6, 8, 8); expected (8, 8)",
        ),
        (
            "zamba2",
            {},
            "Zamba2ForCausalLM cannot be watched: attention is called with layer -1; expected 0 to 2",
        ),
        ("llama", {"max_new_tokens": 34}, "41 tokens would run; the model was made for at most 40"),
        ("gpt2", {"max_new_tokens": 34}, "41 tokens would run; the model was made for at most 40"),
        ("llama", {"prompt": "text"}, "the prompt is 'text'; expected ids"),
        ("llama", {"prompt": [19]}, "token id 19 is out of range; expected 0 to 18"),
        (
            "llama",
            {"max_new_tokens": 1500},
            "1,508 tokens in 18 heads have 20,480,148 attention weights; exp",
        ),
    ],
)
def test_what_cannot_be_watched_raises(model_type: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        watch(model(model_type), None, **{"prompt": PROMPT} | settings)


def test_a_model_without_a_head_raises() -> None:
    with pytest.raises(
        ValueError, match="LlamaModel cannot be watched: it returns no logits; expected a model w"
    ):
        watch(model("llama").model, None, PROMPT)


def test_a_model_in_training_mode_raises() -> None:
    with pytest.raises(ValueError, match=re.escape("call model.eval() first")):
        watch(AutoModelForCausalLM.from_config(model("llama").config), None, PROMPT)
