"""Any model's config.json as a `PublishedModel`: kinds of layers, and parameters counted to the byte.

`families.json` says which keys hold a size, how many numbers each part of a model has (sums of products of
sizes), and what the code of a family has that no key of its configs says. js/model_of.js reads it, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from math import floor
from pathlib import Path
from typing import Any

from helpers.arguments import is_number, is_whole
from helpers.cost.layers import Full, Kind, Latent, State, Window
from helpers.cost.models import MODELS, PublishedModel

KNOWN: dict[str, Any] = json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
PARTS = {"full": "grouped", "window": "grouped", "latent": "latent", "state": "linear"}  # of attention
FAMILIES = {name: has for names, has in KNOWN["families"].items() for name in names.split()}
READ = {*KNOWN["usual"]}.union(*KNOWN["keys"].values())  # keys that hold a size
MOST, MOST_LAYERS = 10**8, 10**4
IS_TEXT = re.compile(r"[{\n]|.{1000}")  # of a config, and no path


def model_of(config: PublishedModel | dict[str, Any] | str | Path) -> PublishedModel:
    """Return the sizes, kinds of layers and parameters of a model; its `notes` say what was counted how.

    Args:
        config: config.json as a dict, a file, its folder, or its text; or a name of MODELS; or such a model.

    Raises:
        ValueError: a size is missing or wrong, or layers are of a kind that is not counted.
    """
    if isinstance(config, PublishedModel):
        return config
    if isinstance(config, str) and config in MODELS and not Path(config).exists():
        return MODELS[config]
    outer = read(config)
    sizes = Sizes(outer)
    n, kinds, sparse = sizes.number, sizes.kinds(), sizes.sparse()
    dense, head_dim = len(kinds) - sparse, "Dn" if n("R") else "D"
    plain = {"n_layers": "L", "n_heads": "H", "n_kv_heads": "Hkv", "head_dim": head_dim, "hidden_size": "C"}
    plain |= {"intermediate_size": "M" if sparse else "F", "vocab_size": "V", "max_seq_len": "P"}
    fields: dict[str, Any] = {field: n(name) for field, name in plain.items()}
    total = n("ends") + len(kinds) * n("norms")
    total += (dense and dense * n("MLP")) + (sparse and sparse * n("MoE"))
    total += sum(layers * n(PARTS[kind]) for kind, layers in Counter(kinds).items())
    experts, active = None, None
    if sparse and (chosen := n("K")) != n("E"):
        if chosen > n("E"):
            raise refusal("chosen", got=chosen, of=n("E"))
        experts = n("E"), chosen
        others = sparse * (n("E") - chosen) * n("expert")
        active = total - (not n("tied")) * n("V") * n("C") - others
    made = {kind: sizes.layer(kind) for kind in dict.fromkeys(kinds)}
    path, kind = (x if isinstance(x, str) else "" for x in (outer.get("_name_or_path"), sizes.type))
    size = f"{billions(total)}B" if total >= 1e9 else f"{floor(total / 1e6 + 0.5)}M"
    return PublishedModel(
        name=path or f"{kind or 'a model'} {size}",
        source="",
        **fields,
        tied=bool(n("tied")),
        n_parameters=total,
        n_active=active,
        qkv_bias=bool(n("qkv_bias")),
        layers=tuple(made[kind] for kind in kinds),
        experts=experts,
        notes=tuple(sizes.notes(kinds, total, active)),
    )


def read(config: Any) -> dict[str, Any]:
    """Return config.json as a dict; errors as in `model_of`."""
    if isinstance(config, Path) or (isinstance(config, str) and not IS_TEXT.search(config)):
        path = Path(config, "config.json") if Path(config).is_dir() else Path(config)
        if not path.is_file():
            known = f"expected config.json, its folder, its text, or one of {[*MODELS]}"
            raise ValueError(f"{config!s:.80} is no file; {known}")
        config = path.read_text(encoding="utf-8")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except ValueError as error:
            raise ValueError(f"the config is no JSON: {error}; expected all of config.json") from error
    if not isinstance(config, dict):
        raise refusal("object", got=written(config))
    return config


class Sizes:
    """The sizes in a config, by their names in families.json; ValueError when a wrong one is asked for."""

    def __init__(self, outer: dict[str, Any]) -> None:
        inner = next((outer[key] for key in KNOWN["inner"] if isinstance(outer.get(key), dict)), outer)
        parts = {key for key, x in outer.items() if isinstance(x, dict) and key.endswith("_config")}
        parts = parts - {*KNOWN["asides"]} if inner is not outer else set()
        tied = {key: outer[key] for key in KNOWN["keys"]["tied"] if key in outer}
        self.config = {key: x for key, x in outer.items() if key not in parts} | inner | tied
        self.left_out = [key for key in outer if key in parts and outer[key] is not inner]
        self.type = self.config.get("model_type")
        self.known = isinstance(self.type, str) and self.type in FAMILIES
        self.usual = KNOWN["usual"] | (FAMILIES[self.type] if self.known else {})
        for key, value in self.config.items():
            if like_a_size(value) and re.search(KNOWN["refused"], key):
                raise refusal("refused", key=key, got=written(value))
            if not self.known and key in KNOWN["activations"] and value not in ("silu", "swish", None):
                raise refusal("activation", key=key, got=written(value), type=written(self.type))

    def number(self, name: str, least: int = 0) -> int:
        """Return a size, 1 for a yes, or what a formula of sizes comes to; "!x" is 1 where x is 0."""
        if name in KNOWN["formulas"]:
            return self.sum(KNOWN["formulas"][name])
        if name.isdigit():
            return int(name)
        if name[0] == "!":
            return int(not self.number(name[1:]))
        keys = KNOWN["keys"].get(name, [name])
        there = [key for key in keys if key in self.config] or keys
        key = next((key for key in there if self.config.get(key) is not None), there[0])
        value, usual = self.config.get(key), KNOWN["usual"].get(keys[0])
        if value is None:  # a key that is not there is as in its family; null is as in most
            value = usual if key in self.config and usual is not None else self.usual.get(keys[0])
            value = self.sum(value) if isinstance(value, str) else value
        got = written(self.config[key]) if key in self.config else "missing"
        if isinstance(usual, bool):
            if not isinstance(value, bool):
                raise refusal("flag", key=key, got=got)
            return int(value)
        least, most = max(least, int(usual != 0)), MOST_LAYERS if name == "L" else MOST
        if not is_number(value) or value % 1 or not least <= value <= most:
            raise refusal("size", key=key, got=got, least=least, most=most)
        return int(value)

    def sum(self, formula: str) -> int:
        """Return a sum of products, "2 C F + C"; "/H" divides, rounded down. After a 0 nothing is asked."""
        total = 0
        for term in formula.split(" + "):
            product = 1
            for name in term.split():
                if product and name[0] == "/":
                    product //= self.number(name[1:])
                elif product:
                    product *= self.number(name)
            total += product
        return total

    def kinds(self) -> list[str]:
        """Return what each layer keeps: a key of PARTS."""
        n, types = self.number, self.config.get("layer_types")
        L, full = n("L"), "latent" if n("R") else "full"
        if types is None:
            windows = full == "full" and n("use_sliding_window") and n("window")
            other = "state" if "linear_num_value_heads" in self.config else "window" if windows else full
            every, first = n("every"), n("max_window_layers")
            return [full if i < first or (every and (i + 1) % every == 0) else other for i in range(L)]
        known = KNOWN["layer_types"] if full == "full" else {"full_attention": full}
        sound = isinstance(types, list) and len(types) == L
        if not sound or not all(isinstance(name, str) and name in known for name in types):
            raise refusal("kinds", got=written(types), L=L, kinds=", ".join(known))
        return [known[name] for name in types]

    def sparse(self) -> int:
        """Return how many layers have experts."""
        n, L = self.number, self.number("L")
        if not n("E"):
            return 0
        kinds, dense = (self.config.get(key) or [] for key in ("mlp_layer_types", "mlp_only_layers"))
        for key, value in (("mlp_layer_types", kinds), ("mlp_only_layers", dense)):
            if not isinstance(value, list):
                raise refusal("list", key=key, got=written(value))
        if len(kinds) == L:
            return kinds.count("sparse")
        first, every = n("first_k_dense_replace"), n("sparse_every")
        return sum(i >= first and (i + 1) % every == 0 and i not in dense for i in range(L))

    def layer(self, kind: str) -> Kind:
        """Return a layer of a kind of PARTS."""
        n = self.number
        if kind == "state":
            return State(n("state"))
        if kind == "latent":
            return Latent(n("R"), n("Dr"))
        heads = n("Hkv"), n("D"), n("Dv")
        return Window(*heads, n("window", 1)) if kind == "window" else Full(*heads)

    def notes(self, kinds: list[str], total: int, active: int | None) -> Iterator[str]:
        """Say what was counted how, what was not, and which keys are not known."""
        if not self.known:
            yield say("notes", "family", type=written(self.type), all=billions(total))
        if self.left_out:
            yield say("notes", "inner", keys=", ".join(self.left_out))
        for kind in ("window", "state", "latent"):
            if kind in kinds:
                window = self.number("window") if kind == "window" else 0
                yield say("notes", kind, n=kinds.count(kind), L=len(kinds), window=window)
        if active is not None:
            yield say("notes", "experts", active=billions(active), all=billions(total))
        for key, aside in KNOWN["asides"].items():
            if self.config.get(key):
                yield say("notes", aside)
        sizes = [key for key, value in self.config.items() if key not in READ and like_a_size(value)]
        if unknown := [key for key in sizes if not re.search(KNOWN["harmless"], key)]:
            yield say("notes", "unknown", keys=", ".join(unknown))


def like_a_size(value: Any) -> bool:
    """Whether a value may change bytes or time: yes, a whole number over 1, a list or object with content."""
    if isinstance(value, (list, dict)):
        return len(value) > 0
    return value is True or (is_number(value) and value > 1 and value % 1 == 0)


def billions(numbers: int) -> str:
    """Write a count in billions, to one decimal: 3.3, 671."""
    return f"{floor(numbers / 1e8 + 0.5) / 10:g}"


def written(value: Any) -> str:
    """Write a value as config.json has it, or its beginning."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= 40 else f"{text[:40]}…"


def say(what: str, name: str, **values: str | int) -> str:
    """Return a sentence of families.json."""
    texts = {key: f"{value:,}" if is_whole(value) else value for key, value in values.items()}
    return str(KNOWN[what][name]).format_map(texts)


def refusal(name: str, **values: str | int) -> ValueError:
    """Return an error whose words stand in families.json."""
    return ValueError(say("refusals", name, **values))
