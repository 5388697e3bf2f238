"""Configs of published models, and the model line of each, for tests/js/model_of.test.mjs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from helpers.cost.config import model_of
from helpers.stepper.machines import model_line

CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("configs.json").read_text("utf-8"))
DROP = "(drop)"
WRONG: list[Any] = [DROP, None, 0, 1, 3, -1, 1.5, 10**9, True, False, "", "x", [], [1], {}, {"a": 1}]
KINDS = "full_attention sliding_attention linear_attention chunked_attention sparse dense x".split()


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A config with another value of a key, of its text model where it has one; without the key for DROP."""
    if isinstance(config.get("text_config"), dict) and key != "text_config":
        return config | {"text_config": changed(config["text_config"], key, value)}
    return {name: x for name, x in config.items() if name != key} | ({} if value == DROP else {key: value})


def line_or_refusal(config: Any) -> dict[str, Any] | str:
    try:
        return model_line(model_of(config))
    except ValueError as error:
        return str(error)


def write_configs(folder: Path) -> None:
    """Write configs.json: each config as it is, and with keys that are wrong; and what Python makes of it."""
    rng = random.Random(0)
    keys = sorted({key for one in CONFIGS.values() for key in one | one.get("text_config", {})})
    keys += "cross_attention_layers mamba_d_state hybrid_pattern my_size model_type hidden_act".split()
    cases: list[Any] = [[wrong, [], line_or_refusal(wrong)] for wrong in WRONG if not isinstance(wrong, str)]
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
