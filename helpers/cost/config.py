"""Convert a model's config.json to a `PublishedModel`, with each layer's type and the number of parameters.

In this module, a size is a dimension such as the hidden size, a count such as the number of layers, or a
flag. What differs between model families is stored in `families.json`, which js/model_of.ts reads, too. For
each size, it lists the config keys that may hold it. It has formulas for the number of parameters in each
component of a model, the sizes that a family's code fixes without a config key, and the default values of the
family's config class in transformers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from math import floor
from pathlib import Path
from typing import Any, NamedTuple

from helpers.cost.layers import Full, Indexer, Latent, LayerType, Selected, State, Window
from helpers.cost.models import MODELS, Experts, PublishedModel
from helpers.validate import is_number, is_whole

FAMILIES_JSON: dict[str, Any] = json.loads(
    Path(__file__).with_name("families.json").read_text(encoding="utf-8")
)
FORMULA_NAMES = {
    "full": "grouped",
    "window": "grouped",
    "latent": "latent",
    "state": "linear",
    "selected": "selected",
    "reselected": "latent",  # with the selection of an earlier layer, so without an indexer
}  # by layer type
FAMILIES = {name: family for names, family in FAMILIES_JSON["families"].items() for name in names.split()}
DEFAULTS = {name: sizes for names, sizes in FAMILIES_JSON["defaults"].items() for name in names.split()}
SIZE_KEYS = {*FAMILIES_JSON["usual"]}.union(*FAMILIES_JSON["keys"].values())  # config keys that hold a size
MAX_SIZE, MAX_LAYERS = 10**8, 10**4
IS_TEXT = re.compile(r"[{\n]|.{1000}")  # a config as JSON, not a path


class UnknownSizeError(ValueError):
    """Raised when a size that the calculation needs is unknown.

    If that size affects only the parameter count, the size of the KV cache is still computed.
    """


def model_of(config: PublishedModel | dict[str, Any] | str | Path) -> PublishedModel:
    """Return a model's sizes, layer types and number of parameters, as computed from its config.json.

    The `notes` of the returned model explain how these were computed. If the config does not determine the
    number of parameters, only the size of the KV cache can be computed, and reading `n_parameters` raises
    ValueError.

    Args:
        config: config.json as a dict, as a JSON string, or as the path of the file or its folder; the name of
            a model in MODELS; or a `PublishedModel`, which is returned unchanged.

    Raises:
        ValueError: a size is invalid; a size that the KV cache depends on is missing; an unknown key may
            change the size of the KV cache; or a layer's type is not supported.
    """
    if isinstance(config, PublishedModel):
        return config
    if isinstance(config, str) and config in MODELS and not Path(config).exists():
        return MODELS[config]
    outer = read_config(config)
    sizes = ConfigSizes(outer)
    n, types = sizes.number, sizes.layer_types()
    for key in sizes.unknown_keys("entries"):
        raise config_error("unread", key=key, got=as_json(sizes.config[key]))
    variants = [
        (kind, i if i in sizes.changes else None) for i, kind in enumerate(types[: sizes.n_caching_layers()])
    ]
    layers: dict[tuple[str, int | None], LayerType] = {}  # equal layers share one object
    for kind, i in dict.fromkeys(variants):
        layers[kind, i] = sizes.of_layer(i).make_layer(kind)
    names = {"n_layers": "L", "n_heads": "H", "n_kv_heads": "Hkv", "head_dim": "Dn" if n("R") else "D"}
    fields: dict[str, Any] = {field: n(name) for field, name in names.items()}
    reason = ""
    try:
        fields |= sizes.parameter_fields(types)
    except UnknownSizeError as error:
        reason = str(error)
        fields |= sizes.width_fields(sizes.number_or_zero) | {"tied": False, "parameters": None}
    path, family = (x if isinstance(x, str) else "" for x in (outer.get("_name_or_path"), sizes.type))
    total = fields["parameters"]
    size = (
        ""
        if total is None
        else f" {format_billions(total)}B"
        if total >= 1e9
        else f" {floor(total / 1e6 + 0.5)}M"
    )
    return PublishedModel(
        name=path or f"{family or 'a model'}{size}",
        source="",
        **fields,
        layers=tuple(layers[variant] for variant in variants),
        notes=tuple(sizes.notes(types, reason, total, fields.get("n_active"))),
    )


def read_config(config: Any) -> dict[str, Any]:
    """Return config.json as a dict.

    Args:
        config: config.json as a dict, as a JSON string, or as the path of the file or its folder.

    Raises:
        ValueError: the file does not exist, or does not contain a JSON object.
    """
    if isinstance(config, Path) or (isinstance(config, str) and not IS_TEXT.search(config)):
        path = Path(config, "config.json") if Path(config).is_dir() else Path(config)
        if not path.is_file():
            expected = f"expected config.json, its folder, its text, or one of {[*MODELS]}"
            raise ValueError(f"{config!s:.80} is not a file; {expected}")
        config = path.read_text(encoding="utf-8")
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the config is not valid JSON: {error}; expected all of config.json") from error
    if not isinstance(config, dict):
        raise config_error("object", got=as_json(config))
    return config


class ConfigSizes:
    """The dimensions, counts and flags that a config sets or implies, by their names in families.json.

    Reading an invalid value raises ValueError.
    """

    def __init__(self, outer: dict[str, Any]) -> None:
        self.config, self.left_out = text_config(outer)
        self.type = self.config.get("model_type")
        self.known = isinstance(self.type, str) and self.type in FAMILIES
        self.family = FAMILIES[self.type] if self.known else {}
        self.usual = FAMILIES_JSON["usual"] | self.family
        self.defaults = DEFAULTS.get(self.type, {}) if self.known else {}
        self.has_windows = not self.known or "sliding_window" in self.family
        for key, value in self.config.items():
            if looks_like_size(value) and re.search(FAMILIES_JSON["refused"], key):
                raise config_error("refused", key=key, got=as_json(value))

        per_layer = self.config.get("per_layer_config") or {}
        for i, changes in per_layer.items() if isinstance(per_layer, dict) else [("", per_layer)]:
            if (
                not re.fullmatch("[0-9]{1,5}", i)
                or not isinstance(changes, dict)
                or not {*changes} <= SIZE_KEYS
            ):
                raise config_error("unread", key="per_layer_config", got=as_json(per_layer))
        self.changes = {int(i): changes for i, changes in per_layer.items()}

    def of_layer(self, layer: int | None) -> ConfigSizes:
        """Return the sizes of one layer, with the values that per_layer_config sets for it.

        Args:
            layer: the layer's index, from 0. None returns the sizes of layers that per_layer_config does not
                change.
        """
        sizes = copy(self)
        sizes.config = self.config | ({} if layer is None else self.changes[layer])
        return sizes

    def number(self, name: str, minimum: int = 0) -> int:
        """Return the size called `name`. The value of a flag is 1 for true and 0 for false.

        Args:
            name: the name of a size in families.json, which may have a formula there; a whole number in
                digits, which is returned; or "!x", which is 1 if the size x is 0, and otherwise 0.
            minimum: smallest valid value.

        Raises:
            ValueError: the size is unknown or invalid.
        """
        if formula := FAMILIES_JSON["formulas"].get(name) or (
            name in FAMILIES_JSON["keys"] and self.family.get(name)
        ):
            return self.evaluate(formula)
        if name.isdigit():
            return int(name)
        if name[0] == "!":
            return int(not self.number(name[1:]))
        keys = FAMILIES_JSON["keys"].get(name, [name])
        present = [key for key in keys if key in self.config] or keys
        key = next((key for key in present if self.config.get(key) is not None), present[0])
        value, usual = self.config.get(key), FAMILIES_JSON["usual"].get(keys[0])
        if value == -1 and name == "last_sparse":  # the last layer
            value = None
        if value is None:  # the family decides what a missing config key means; null means the usual value
            value = usual if key in self.config else None
            value = self.defaults.get(name, self.usual.get(keys[0])) if value is None else value
            value = self.evaluate(value) if isinstance(value, str) else value
            if value is None:
                raise UnknownSizeError(format_text("refusals", "missing", key=key, type=as_json(self.type)))
        if name == "every" and isinstance(value, str) and re.fullmatch("L*G", value):
            value = len(value)  # "LLLG": three layers with a window, then one without
        if isinstance(usual, bool):
            if not isinstance(value, bool):
                raise config_error("flag", key=key, got=as_json(value))
            return int(value)
        minimum, maximum = max(minimum, int(usual != 0)), MAX_LAYERS if name == "L" else MAX_SIZE
        if not is_number(value) or value % 1 or not minimum <= value <= maximum:
            raise config_error("size", key=key, got=as_json(value), least=minimum, most=maximum)
        return int(value)

    def number_or_zero(self, name: str) -> int:
        """Return the size called `name`, or 0 if it is unknown or not a valid number."""
        try:
            return self.number(name)
        except ValueError:
            return 0

    def evaluate(self, formula: str) -> int:
        """Return the value of a formula, which is a sum of products of sizes, such as "2 C F + C".

        In a product, "/H" divides by H and rounds down. Once a product is 0, its remaining factors are not
        evaluated, so they may be unknown.
        """
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

    def layer_types(self) -> list[str]:
        """Return the type of each layer, as a key of FORMULA_NAMES."""
        n, types = self.number, self.config.get("layer_types")
        L, full = n("L"), "latent" if n("R") else "full"
        sparse = self.config.get("sparse_attention_freq")
        if types is None and isinstance(sparse, list):
            types = ["indexed_attention" if flag else "full_attention" for flag in sparse]
        if types is None:
            windows = full == "full" and self.has_windows and n("use_sliding_window") and n("window")
            other = "selected" if n("chosen") else "window" if windows else full
            other = "state" if "linear_num_value_heads" in self.config else other
            every, first = n("every"), n("max_window_layers")
            kinds = [full if i < first or (every and (i + 1) % every == 0) else other for i in range(L)]
        else:
            known = FAMILIES_JSON["layer_types" if full == "full" else "latent_layer_types"]
            valid = isinstance(types, list) and len(types) == L
            if not valid or not all(isinstance(name, str) and name in known for name in types):
                raise config_error("layer_types", got=as_json(types), L=L, known=", ".join(known))
            kinds = [known[name] for name in types]
            kinds = [full if kind == "window" and not self.has_windows else kind for kind in kinds]
        has_indexer = self.has_indexer() if "selected" in kinds else [True] * L
        return [
            "reselected" if kind == "selected" and not own else kind
            for kind, own in zip(kinds, has_indexer, strict=True)
        ]

    def has_indexer(self) -> list[bool]:
        """Return, for each layer, whether it selects tokens itself instead of as an earlier layer did."""
        L = self.number("L")
        key = "indexer_types" if self.config.get("indexer_types") else "index_topk_pattern"
        if modes := self.config.get(key):
            valid = isinstance(modes, (list, str)) and len(modes) == L
            if not valid or not all(mode in ("F", "S", "full", "shared") for mode in modes):
                raise config_error("indexers", key=key, got=as_json(modes), L=L)
            return [mode in ("F", "full") for mode in modes]
        every, first = self.number("index_every"), self.number("index_first")
        return [max(i - first + 1, 0) % every == 0 for i in range(L)]

    def n_caching_layers(self) -> int:
        """Return the number of layers that cache their own KV entries.

        These are the first layers of the model. The other layers use KV entries of these layers.
        """
        shared, L = self.number("num_kv_shared_layers"), self.number("L")
        if shared >= L:
            raise config_error("size", key="num_kv_shared_layers", got=as_json(shared), least=0, most=L - 1)
        return L - shared

    def n_expert_layers(self) -> int:
        """Return the number of layers that have experts."""
        n, L = self.number, self.number("L")
        if not n("E"):
            return 0
        types, dense = (self.config.get(key) or [] for key in ("mlp_layer_types", "mlp_only_layers"))
        for key, value in (("mlp_layer_types", types), ("mlp_only_layers", dense)):
            if not isinstance(value, list):
                raise config_error("list", key=key, got=as_json(value))
        if len(types) == L:
            return types.count("sparse")
        first, last, every = n("first_sparse"), n("last_sparse"), n("sparse_every")
        return sum(first <= i <= last and (i + 1) % every == 0 and i not in dense for i in range(L))

    def make_layer(self, layer_type: str) -> LayerType:
        """Return a description of what a layer with the sizes in this config caches.

        Args:
            layer_type: a key of FORMULA_NAMES.
        """
        n = self.number
        if layer_type == "state":
            return State(n("state"))
        if layer_type == "latent":
            return Latent(n("R"), n("Dr"))
        if "selected" in layer_type:
            entry = Latent(n("R"), n("Dr")) if n("R") else Full(n("Hkv"), n("D"), n("Dv"))
            indexer = Indexer(n("Hi", 1), n("Di", 1)) if layer_type == "selected" else None
            return Selected(entry, n("chosen", 1), indexer)
        if layer_type == "window":
            return Window(n("Hkv"), n("D"), n("Dv"), n("window", 1))
        return Full(n("full_heads"), n("full_dim"), n("full_v_dim"))

    def width_fields(self, number: Callable[[str], int], sparse: int = 0) -> dict[str, Any]:
        """Return the dimensions that do not affect the KV cache, by field name of `PublishedModel`.

        Args:
            number: a function that takes a size's name in families.json and returns the size.
            sparse: number of layers with experts. If it is not 0, `intermediate_size` is that of one expert.
        """
        names = {"hidden_size": "C", "intermediate_size": "M" if sparse else "F"}
        names |= {"vocab_size": "V", "max_seq_len": "P"}
        return {field: number(name) for field, name in names.items()}

    def parameter_fields(self, types: list[str]) -> dict[str, Any]:
        """Return `parameters` and the related fields of `PublishedModel`, by field name.

        Args:
            types: the type of each layer, as a key of FORMULA_NAMES.

        Raises:
            UnknownSizeError: the config does not determine the number of parameters.
            ValueError: a token chooses more experts than a layer has.
        """
        if not self.family.get("parts", True):
            raise UnknownSizeError(format_text("refusals", "parts", type=as_json(self.type)))
        for key, value in self.config.items():
            if (
                key in FAMILIES_JSON["activations"]
                and not self.known
                and value not in ("silu", "swish", None)
            ):
                got = {"key": key, "got": as_json(value), "type": as_json(self.type)}
                raise UnknownSizeError(format_text("refusals", "activation", **got))
        shared = ["num_kv_shared_layers"] if self.n_caching_layers() < len(types) else []
        for key in [*self.unknown_keys("part"), *shared, *(["per_layer_config"] if self.changes else [])]:
            text = format_text("refusals", "unread parts", key=key, got=as_json(self.config[key]))
            raise UnknownSizeError(text)
        n, sparse = self.number, self.n_expert_layers()
        dense, fields = len(types) - sparse, self.width_fields(n, sparse)
        total = n("ends") + len(types) * n("norms")
        total += (dense and dense * n("MLP")) + (sparse and sparse * n("MoE"))
        total += sum(layers * n(FORMULA_NAMES[kind]) for kind, layers in Counter(types).items())
        fields |= {"tied": bool(n("tied")), "qkv_bias": bool(n("qkv_bias")), "parameters": total}
        if sparse and (chosen := n("K")) != n("E"):
            if chosen > n("E"):
                raise config_error("chosen", got=chosen, of=n("E"))
            others = sparse * (n("E") - chosen) * n("expert")
            fields |= {"experts": Experts(n("E"), chosen)}
            fields |= {"n_active": total - (not n("tied")) * n("V") * n("C") - others}
        return fields

    def unknown_keys(self, category: str) -> list[str]:
        """Return the config keys that are unknown and may change the size of the weights or of the KV cache.

        Args:
            category: which keys to return, by what their names suggest that they affect: "entries" for the KV
                entries, "part" for the components of a layer or of the model, or "others" if their names
                suggest neither.
        """
        keys, L = [], self.number("L")
        for key, value in self.config.items():
            if key in SIZE_KEYS or key in self.family or re.search(FAMILIES_JSON["harmless"], key):
                continue
            inner = value if isinstance(value, dict) else {}
            names = [name for name, x in {key: value, **inner}.items() if may_change_bytes(name, x)]
            kind = next(
                (
                    kind
                    for kind in ("part", "entries")
                    if any(re.search(FAMILIES_JSON[kind], x) for x in names)
                ),
                "others",
            )
            if isinstance(value, list) and len(value) == L > 1:
                kind = "entries"
            if (
                names
                and kind == category
                and not (kind != "entries" and re.search(FAMILIES_JSON["harmless_ends"], key))
            ):
                keys.append(key)
        return keys

    def notes(self, types: list[str], reason: str, total: int | None, active: int | None) -> Iterator[str]:
        """Yield sentences on how the sizes were computed, what was left out, and which keys are unknown.

        Args:
            types: the type of each layer, as a key of FORMULA_NAMES.
            reason: why the parameters were not counted; used only if `total` is None.
            total: number of parameters; None if they were not counted.
            active: number of parameters used per token; None if all of them are used.
        """
        n, type_names = self.number, self.config.get("layer_types") or []
        if total is None:
            yield format_text("notes", "uncounted", why=reason)
        elif not self.known:
            yield format_text("notes", "family", type=as_json(self.type), all=format_billions(total))
        names = {name: FAMILIES_JSON["keys"].get(name, [name]) for name in self.defaults}
        missing = {keys[0]: n(name) for name, keys in names.items() if not {*keys} & {*self.config}}
        if missing:
            sizes = ", ".join(f"{key} {size:,}" for key, size in missing.items())
            yield format_text("notes", "defaults", keys=sizes)
        if self.left_out:
            yield format_text("notes", "inner", keys=", ".join(self.left_out))
        if not self.has_windows and (
            n("window") or any(FAMILIES_JSON["layer_types"].get(x) == "window" for x in type_names)
        ):
            yield format_text("notes", "no windows", type=as_json(self.type))
        for kind in ("window", "state", "latent", "selected"):
            if kind in types:
                layers = sum(kind in name for name in types)  # "selected" is in "reselected", too
                limit = n({"window": "window", "selected": "chosen"}.get(kind, "0"))
                yield format_text("notes", kind, n=layers, L=len(types), limit=limit)
        if self.n_caching_layers() < len(types):
            yield format_text("notes", "shared", n=len(types) - self.n_caching_layers(), L=len(types))
        if active is not None and total is not None:
            yield format_text("notes", "experts", active=format_billions(active), all=format_billions(total))
        for aside in dict.fromkeys(
            aside for key, aside in FAMILIES_JSON["asides"].items() if self.config.get(key)
        ):
            yield format_text("notes", aside)
        if others := self.unknown_keys("others"):
            yield format_text("notes", "unknown", keys=", ".join(others))


class TextConfig(NamedTuple):
    """The config of a text model, which may be nested in the config of a larger model."""

    config: dict[str, Any]
    left_out: list[str]  # config keys of the larger model's other components, such as "vision_config"


def text_config(outer: dict[str, Any]) -> TextConfig:
    """Return the config of the text model that a config.json describes.

    If the text model's config is nested in `outer`, its keys override those of `outer`, except the key that
    ties the LM head to the embedding. Unknown keys of `outer` whose names suggest that they affect components
    or KV entries are ignored.
    """
    config, left_out = outer, list[str]()
    elsewhere = f"{FAMILIES_JSON['part']}|{FAMILIES_JSON['entries']}"
    while key := next((key for key in FAMILIES_JSON["inner"] if isinstance(config.get(key), dict)), None):
        parts = {name for name, x in config.items() if isinstance(x, dict) and name.endswith("_config")}
        parts -= {*FAMILIES_JSON["asides"]}
        left_out += [name for name in config if name in parts and name != key]
        tied = {name: config[name] for name in FAMILIES_JSON["keys"]["tied"] if name in config}
        whole = {name: x for name, x in config.items() if name in SIZE_KEYS or not re.search(elsewhere, name)}
        config = {name: x for name, x in whole.items() if name not in parts} | config[key] | tied
    for key in FAMILIES_JSON["flattened"]:
        config = config | (config[key] if isinstance(config.get(key), dict) else {})
    return TextConfig(config, left_out)


def looks_like_size(value: Any) -> bool:
    """Return whether a config value looks like a size.

    Whole numbers greater than 1 do, and so do nonempty lists and objects, and flags whose value is true.
    """
    if isinstance(value, (list, dict)):
        return len(value) > 0
    return value is True or (is_number(value) and value > 1 and value % 1 == 0)


def may_change_bytes(key: str, value: Any) -> bool:
    """Return whether an unknown config key may change the size of the weights or of the KV cache.

    It may if its value looks like a size (see `looks_like_size`). For a key whose name suggests a number of
    KV heads, the value 1 is enough.
    """
    return looks_like_size(value) or (value == 1 and re.search("(^|[^q])kv|key_value", key) is not None)


def format_billions(numbers: int) -> str:
    """Format a number of parameters in billions, rounded to one decimal, such as "3.3" or "671"."""
    return f"{floor(numbers / 1e8 + 0.5) / 10:g}"


def as_json(value: Any) -> str:
    """Format a config value as JSON, cut off after 40 characters."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= 40 else f"{text[:40]}…"


def format_text(group: str, name: str, **values: str | int) -> str:
    """Return a sentence from families.json, with `values` filled in.

    Args:
        group: the group of sentences, such as "notes" or "refusals".
        name: the name of the sentence in the group.
        values: the values to fill in, by the names of the sentence's placeholders.
    """
    texts = {key: f"{value:,}" if is_whole(value) else value for key, value in values.items()}
    return str(FAMILIES_JSON[group][name]).format_map(texts)


def config_error(name: str, **values: str | int) -> ValueError:
    """Return a ValueError whose message is the sentence `name` in the group "refusals" of families.json.

    `values` are filled in, as in `format_text`.
    """
    return ValueError(format_text("refusals", name, **values))
