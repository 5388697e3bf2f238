"""Configs of published models, and the model fields that Python reads from each.

tests/js/model_of.test.mjs compares the page's results with them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from helpers.cost.config import model_of
from helpers.cost.dated import DATED
from helpers.stepper.machines import model_fields

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("configs.json").read_text("utf-8"))
DROP = "(drop)"
WRONG: list[Any] = [DROP, None, 0, 1, 3, -1, 1.5, 10**9, True, False, "", "x", [], [1], {}, {"a": 1}]
PUBLISHED: dict[str, dict[str, Any]] = {  # what config.json of these models says of sizes, and no more
    "PaliGemma-3B": {
        "model_type": "paligemma", "projector_layers": 2, "quantization": {"group_size": 64, "bits": 4},
        "vision_config": {"hidden_size": 1152}, "text_config": {
            "model_type": "gemma", "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8,
            "num_hidden_layers": 18, "num_key_value_heads": 1, "vocab_size": 257216}},
    "LLaVA-1.5-7B": {"model_type": "llava", "text_config": {
        "model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064}},
    "Pixtral-12B": {"model_type": "llava", "text_config": {
        "model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "num_hidden_layers": 40,
        "max_position_embeddings": 1024000, "sliding_window": None, "vocab_size": 131072}},
    "Qwen2.5-Omni-7B": {"model_type": "qwen2_5_omni", "talker_config": {"d": 896}, "thinker_config": {
        "audio_config": {"d_model": 1280}, "text_config": {"model_type": "qwen2_5_omni_text"}}},
    "GLM-4-9B": {
        "model_type": "chatglm", "add_qkv_bias": True, "ffn_hidden_size": 13696, "hidden_size": 4096,
        "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2, "num_layers": 40,
        "num_attention_heads": 32, "padded_vocab_size": 151552, "seq_length": 131072},
    "Falcon-7B": {
        "model_type": "falcon", "alibi": False, "hidden_size": 4544, "multi_query": True, "num_kv_heads": 71,
        "num_attention_heads": 71, "num_hidden_layers": 32, "vocab_size": 65024},
    "Falcon-40B": {
        "model_type": "falcon", "hidden_size": 8192, "new_decoder_architecture": True, "num_kv_heads": 8,
        "num_attention_heads": 128, "num_hidden_layers": 60, "vocab_size": 65024},
    "Bloom-176B": {"model_type": "bloom", "n_layer": 70, "num_attention_heads": 112, "hidden_size": 14336},
    "MPT-7B": {
        "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,
        "attn_config": {"alibi": True, "attn_type": "multihead_attention"}, "max_seq_len": 2048,
        "vocab_size": 50432},
    "LongCat-Flash": {
        "model_type": "longcat_flash", "hidden_size": 6144, "kv_lora_rank": 512, "num_attention_heads": 64,
        "num_layers": 28, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "EXAONE-4.0-32B": {
        "model_type": "exaone4", "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
        "num_hidden_layers": 64, "sliding_window": 4096, "sliding_window_pattern": "LLLG", "head_dim": 128},
    "OLMo-1.7-7B": {"model_type": "olmo", "hidden_act": "silu", "clip_qkv": 8, "hidden_size": 4096,
        "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 50304,
        "max_position_embeddings": 4096},
    "Phi-3 with windows": {"model_type": "phi3", "sliding_window": 2047},
    "Llama with windows": {
        "model_type": "llama", "sliding_window": 4096, "layer_types": ["sliding_attention"] * 32},
    "every other layer sparse": {
        "model_type": "qwen2_moe", "num_hidden_layers": 5, "decoder_sparse_step": 2,
        "intermediate_size": 5632},
    "Gemma 4, K and V shared": {
        "model_type": "gemma4_text", "num_hidden_layers": 12, "num_kv_shared_layers": 4},
    "two heads in one layer": {"model_type": "llama", "per_layer_config": {"03": {"num_key_value_heads": 2}}},
    "no JSON number": {"model_type": "llama", "per_layer_config": {"x": {}}},
    "ERNIE-4.5-21B": {"model_type": "ernie4_5_moe", "moe_layer_end_index": -1, "moe_capacity": [64, 64, 64]},
    "two layers shared": {"model_type": "llama", "num_kv_shared_layers": 2},
    "all layers shared": {"model_type": "llama", "num_kv_shared_layers": 32},
    "MiniMax-Text-01": {"model_type": "new", "num_hidden_layers": 4, "attn_type_list": [0, 0, 0, 1],
        "hidden_size": 512, "num_attention_heads": 4},
    "a KV head in a part": {"model_type": "new", "n_layers": 4, "d_model": 512, "n_heads": 4,
        "attn_config": {"kv_n_heads": 1}},
    "experts under other names": {"model_type": "new", "n_layers": 4, "d_model": 512, "n_heads": 4,
        "moe_count": 8, "vocab_size": 100, "intermediate_size": [3], "max_seq_len": 100},
    "MiniMax-M3, by layer_types": {"model_type": "minimax_m3_vl_text", "num_hidden_layers": 2,
        "layer_types": ["full_attention", "minimax_m3_sparse"]},
    "an indexer in the first layer": {"model_type": "glm_moe_dsa", "num_hidden_layers": 3,
        "index_topk_pattern": "FSS"},
    "an indexer in the second layer": {"model_type": "glm_moe_dsa", "num_hidden_layers": 3,
        "indexer_types": ["full", "full", "shared"]},
    "indexers of no kind": {"model_type": "glm_moe_dsa", "num_hidden_layers": 3, "indexer_types": ["full"]},
    **{name: entry.value for name, entry in DATED["models"].items()},
}  # fmt: skip
KINDS = "full_attention sliding_attention linear_attention chunked_attention sparse dense x".split()


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Return a config in which a config key has another value, or is missing if `value` is DROP.

    If the config has a `text_config`, the key is changed there.
    """
    if isinstance(config.get("text_config"), dict) and key != "text_config":
        return config | {"text_config": changed(config["text_config"], key, value)}
    return {name: x for name, x in config.items() if name != key} | ({} if value == DROP else {key: value})


def line_or_refusal(config: Any) -> dict[str, Any] | str:
    try:
        return model_fields(model_of(config))
    except ValueError as error:
        return str(error)


def write_configs(folder: Path) -> None:
    """Write configs.json, with Python's result for each config, unchanged and with wrong values of its keys.

    A result is the model's fields, or the error message.
    """
    rng = random.Random(0)
    keys = sorted({key for one in CONFIGS.values() for key in one | one.get("text_config", {})})
    keys += "cross_attention_layers mamba_d_state hybrid_pattern my_size model_type hidden_act".split()
    cases: list[Any] = [[wrong, [], line_or_refusal(wrong)] for wrong in WRONG if not isinstance(wrong, str)]
    cases += [[config, [], line_or_refusal(config)] for config in PUBLISHED.values()]
    for name, config in CONFIGS.items():
        for n in range(150):
            changes = [[rng.choice(keys), rng.choice(WRONG)] for _ in range(n % 4)]
            if n % 5 == 4:  # four layers of any kinds
                lists = [
                    ["layer_types", rng.choices(KINDS[:4], k=4)],
                    ["mlp_layer_types", rng.choices(KINDS[4:], k=4)],
                ]
                changes += [["num_hidden_layers", 4], *rng.choices(lists, k=2)]
            one = config
            for key, value in changes:
                one = changed(one, key, value)
            cases.append([name, changes, line_or_refusal(one)])
    (folder / "configs.json").write_text(json.dumps({"configs": CONFIGS, "cases": cases}), encoding="utf-8")
