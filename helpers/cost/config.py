"""Any model's config.json as a `PublishedModel`: kinds of layers, and parameters counted to the byte.

`families.json` says which keys hold a size, how many numbers each part of a model has (sums of products of
sizes), what the code of a family has that no key of its configs says, and the sizes that its class in
transformers takes where a config says none. js/model_of.ts reads it, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from math import floor
from pathlib import Path
from typing import Any

from helpers.cost.layers import Full, Kind, Latent, State, Window
from helpers.cost.models import MODELS, PublishedModel
from helpers.validate import is_number, is_whole

KNOWN: dict[str, Any] = json.loads(Path(__file__).with_name("families.json").read_text(encoding="utf-8"))
PARTS = {"full": "grouped", "window": "grouped", "latent": "latent", "state": "linear"}  # of attention
FAMILIES = {name: has for names, has in KNOWN["families"].items() for name in names.split()}
DEFAULTS = {name: sizes for names, sizes in KNOWN["defaults"].items() for name in names.split()}
READ = {*KNOWN["usual"]}.union(*KNOWN["keys"].values())  # keys that hold a size
MOST, MOST_LAYERS = 10**8, 10**4
IS_TEXT = re.compile(r"[{\n]|.{1000}")  # of a config, and no path


class Uncounted(ValueError):  # noqa: N818  it says what is so, not that somebody erred
    """A size is not known; where only the parameters need it, KV entries are counted all the same."""


def model_of(config: PublishedModel | dict[str, Any] | str | Path) -> PublishedModel:
    """Return the sizes, kinds of layers and parameters of a model; its `notes` say what was counted how.

    Of a family whose parts are not known KV entries alone are counted; `n_parameters` then says why.

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
    n, kinds = sizes.number, sizes.kinds()
    for key in sizes.unread("entries"):
        raise refusal("unread", key=key, got=written(sizes.config[key]))
    own = sizes.own()
    made: dict[tuple[str, int | None], Kind] = {}  # the same object for layers that are alike
    places = [(kind, i if i in sizes.changes else None) for i, kind in enumerate(kinds[:own])]
    for kind, i in dict.fromkeys(places):
        made[kind, i] = sizes.at(i).layer(kind)
    entries = {"n_layers": "L", "n_heads": "H", "n_kv_heads": "Hkv", "head_dim": "Dn" if n("R") else "D"}
    fields: dict[str, Any] = {field: n(name) for field, name in entries.items()}
    why = ""
    try:
        fields |= sizes.counted(kinds)
    except Uncounted as error:
        why, fields = str(error), fields | sizes.plain(sizes.or_zero) | {"tied": False, "parameters": None}
    path, kind = (x if isinstance(x, str) else "" for x in (outer.get("_name_or_path"), sizes.type))
    total = fields["parameters"]
    size = (
        "" if total is None else f" {billions(total)}B" if total >= 1e9 else f" {floor(total / 1e6 + 0.5)}M"
    )
    return PublishedModel(
        name=path or f"{kind or 'a model'}{size}",
        source="",
        **fields,
        layers=tuple(made[place] for place in places),
        notes=tuple(sizes.notes(kinds, why, total, fields.get("n_active"))),
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
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the config is no JSON: {error}; expected all of config.json") from error
    if not isinstance(config, dict):
        raise refusal("object", got=written(config))
    return config


class Sizes:
    """The sizes in a config, by their names in families.json; ValueError when a wrong one is asked for."""

    def __init__(self, outer: dict[str, Any]) -> None:
        self.config, self.left_out = text_model(outer)
        self.type = self.config.get("model_type")
        self.known = isinstance(self.type, str) and self.type in FAMILIES
        self.family = FAMILIES[self.type] if self.known else {}
        self.usual = KNOWN["usual"] | self.family
        self.defaults = DEFAULTS.get(self.type, {}) if self.known else {}
        self.has_windows = not self.known or "sliding_window" in self.family
        for key, value in self.config.items():
            if like_a_size(value) and re.search(KNOWN["refused"], key):
                raise refusal("refused", key=key, got=written(value))

        each = self.config.get("per_layer_config") or {}
        for i, changes in each.items() if isinstance(each, dict) else [("", each)]:
            if not re.fullmatch("[0-9]{1,5}", i) or not isinstance(changes, dict) or not {*changes} <= READ:
                raise refusal("unread", key="per_layer_config", got=written(each))
        self.changes = {int(i): changes for i, changes in each.items()}

    def at(self, layer: int | None) -> Sizes:
        """Return the sizes of a layer that per_layer_config changes; None for the others."""
        its = copy(self)
        its.config = self.config | ({} if layer is None else self.changes[layer])
        return its

    def number(self, name: str, least: int = 0) -> int:
        """Return a size, 1 for a yes, or what a formula of sizes comes to; "!x" is 1 where x is 0."""
        if formula := KNOWN["formulas"].get(name) or (name in KNOWN["keys"] and self.family.get(name)):
            return self.sum(formula)
        if name.isdigit():
            return int(name)
        if name[0] == "!":
            return int(not self.number(name[1:]))
        keys = KNOWN["keys"].get(name, [name])
        there = [key for key in keys if key in self.config] or keys
        key = next((key for key in there if self.config.get(key) is not None), there[0])
        value, usual = self.config.get(key), KNOWN["usual"].get(keys[0])
        if value == -1 and name == "last_sparse":  # the last layer
            value = None
        if value is None:  # a key that is not there is as in its family; null is as in most
            value = usual if key in self.config else None
            value = self.defaults.get(name, self.usual.get(keys[0])) if value is None else value
            value = self.sum(value) if isinstance(value, str) else value
            if value is None:
                raise Uncounted(say("refusals", "missing", key=key, type=written(self.type)))
        if name == "every" and isinstance(value, str) and re.fullmatch("L*G", value):
            value = len(value)  # "LLLG": three layers with a window, then one without
        if isinstance(usual, bool):
            if not isinstance(value, bool):
                raise refusal("flag", key=key, got=written(value))
            return int(value)
        least, most = max(least, int(usual != 0)), MOST_LAYERS if name == "L" else MOST
        if not is_number(value) or value % 1 or not least <= value <= most:
            raise refusal("size", key=key, got=written(value), least=least, most=most)
        return int(value)

    def or_zero(self, name: str) -> int:
        """Return a size, 0 where it is not known, or is not one number."""
        try:
            return self.number(name)
        except ValueError:
            return 0

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
            windows = full == "full" and self.has_windows and n("use_sliding_window") and n("window")
            other = "state" if "linear_num_value_heads" in self.config else "window" if windows else full
            every, first = n("every"), n("max_window_layers")
            return [full if i < first or (every and (i + 1) % every == 0) else other for i in range(L)]
        known = KNOWN["layer_types"] if full == "full" else {"full_attention": full}
        sound = isinstance(types, list) and len(types) == L
        if not sound or not all(isinstance(name, str) and name in known for name in types):
            raise refusal("kinds", got=written(types), L=L, kinds=", ".join(known))
        return [full if known[name] == "window" and not self.has_windows else known[name] for name in types]

    def own(self) -> int:
        """Return how many layers keep entries of their own; those after them read these."""
        shared, L = self.number("num_kv_shared_layers"), self.number("L")
        if shared >= L:
            raise refusal("size", key="num_kv_shared_layers", got=written(shared), least=0, most=L - 1)
        return L - shared

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
        first, last, every = n("first_sparse"), n("last_sparse"), n("sparse_every")
        return sum(first <= i <= last and (i + 1) % every == 0 and i not in dense for i in range(L))

    def layer(self, kind: str) -> Kind:
        """Return a layer of a kind of PARTS."""
        n = self.number
        if kind == "state":
            return State(n("state"))
        if kind == "latent":
            return Latent(n("R"), n("Dr"))
        if kind == "window":
            return Window(n("Hkv"), n("D"), n("Dv"), n("window", 1))
        return Full(n("full_heads"), n("full_dim"), n("full_v_dim"))

    def plain(self, number: Callable[[str], int], sparse: int = 0) -> dict[str, Any]:
        """Return the sizes that parameters need and KV entries do not."""
        names = {"hidden_size": "C", "intermediate_size": "M" if sparse else "F"}
        names |= {"vocab_size": "V", "max_seq_len": "P"}
        return {field: number(name) for field, name in names.items()}

    def counted(self, kinds: list[str]) -> dict[str, Any]:
        """Return the parameters, and what they need. Uncounted where that is not known."""
        if not self.family.get("parts", True):
            raise Uncounted(say("refusals", "parts", type=written(self.type)))
        for key, value in self.config.items():
            if key in KNOWN["activations"] and not self.known and value not in ("silu", "swish", None):
                raise Uncounted(
                    say("refusals", "activation", key=key, got=written(value), type=written(self.type))
                )
        shared = ["num_kv_shared_layers"] if self.own() < len(kinds) else []
        for key in [*self.unread("part"), *shared, *(["per_layer_config"] if self.changes else [])]:
            raise Uncounted(say("refusals", "unread parts", key=key, got=written(self.config[key])))
        n, sparse = self.number, self.sparse()
        dense, fields = len(kinds) - sparse, self.plain(n, sparse)
        total = n("ends") + len(kinds) * n("norms")
        total += (dense and dense * n("MLP")) + (sparse and sparse * n("MoE"))
        total += sum(layers * n(PARTS[kind]) for kind, layers in Counter(kinds).items())
        fields |= {"tied": bool(n("tied")), "qkv_bias": bool(n("qkv_bias")), "parameters": total}
        if sparse and (chosen := n("K")) != n("E"):
            if chosen > n("E"):
                raise refusal("chosen", got=chosen, of=n("E"))
            others = sparse * (n("E") - chosen) * n("expert")
            fields |= {"experts": (n("E"), chosen)}
            fields |= {"n_active": total - (not n("tied")) * n("V") * n("C") - others}
        return fields

    def unread(self, what: str) -> list[str]:
        """Return the keys that are not understood and concern "entries", a "part" of weights, or "others"."""
        found, L = [], self.number("L")
        for key, value in self.config.items():
            if key in READ or key in self.family or re.search(KNOWN["harmless"], key):
                continue
            inner = value if isinstance(value, dict) else {}
            names = [name for name, x in {key: value, **inner}.items() if weighs(name, x)]
            kind = next(
                (kind for kind in ("part", "entries") if any(re.search(KNOWN[kind], x) for x in names)),
                "others",
            )
            if isinstance(value, list) and len(value) == L > 1:
                kind = "entries"
            if names and kind == what and not (kind != "entries" and re.search(KNOWN["harmless_ends"], key)):
                found.append(key)
        return found

    def notes(self, kinds: list[str], why: str, total: int | None, active: int | None) -> Iterator[str]:
        """Say what was counted how, what was not, and which keys are not known."""
        n, types = self.number, self.config.get("layer_types") or []
        if total is None:
            yield say("notes", "uncounted", why=why)
        elif not self.known:
            yield say("notes", "family", type=written(self.type), all=billions(total))
        names = {name: KNOWN["keys"].get(name, [name]) for name in self.defaults}
        left = {keys[0]: n(name) for name, keys in names.items() if not {*keys} & {*self.config}}
        if left:
            yield say("notes", "defaults", keys=", ".join(f"{key} {size:,}" for key, size in left.items()))
        if self.left_out:
            yield say("notes", "inner", keys=", ".join(self.left_out))
        if not self.has_windows and (
            n("window") or any(KNOWN["layer_types"].get(x) == "window" for x in types)
        ):
            yield say("notes", "no windows", type=written(self.type))
        for kind in ("window", "state", "latent"):
            if kind in kinds:
                window = n("window") if kind == "window" else 0
                yield say("notes", kind, n=kinds.count(kind), L=len(kinds), window=window)
        if self.own() < len(kinds):
            yield say("notes", "shared", n=len(kinds) - self.own(), L=len(kinds))
        if active is not None and total is not None:
            yield say("notes", "experts", active=billions(active), all=billions(total))
        for aside in dict.fromkeys(aside for key, aside in KNOWN["asides"].items() if self.config.get(key)):
            yield say("notes", aside)
        if others := self.unread("others"):
            yield say("notes", "unknown", keys=", ".join(others))


def text_model(outer: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the keys of the text model, and the parts of the config that are left out.

    Layers and heads of which the whole config speaks, under keys that are not understood, are not the text's.
    """
    config, left_out = outer, list[str]()
    elsewhere = f"{KNOWN['part']}|{KNOWN['entries']}"
    while key := next((key for key in KNOWN["inner"] if isinstance(config.get(key), dict)), None):
        parts = {name for name, x in config.items() if isinstance(x, dict) and name.endswith("_config")}
        parts -= {*KNOWN["asides"]}
        left_out += [name for name in config if name in parts and name != key]
        tied = {name: config[name] for name in KNOWN["keys"]["tied"] if name in config}
        whole = {name: x for name, x in config.items() if name in READ or not re.search(elsewhere, name)}
        config = {name: x for name, x in whole.items() if name not in parts} | config[key] | tied
    return config, left_out


def like_a_size(value: Any) -> bool:
    """Whether a value may change bytes or time: yes, a whole number over 1, a list or object with content."""
    if isinstance(value, (list, dict)):
        return len(value) > 0
    return value is True or (is_number(value) and value > 1 and value % 1 == 0)


def weighs(key: str, value: Any) -> bool:
    """Whether a key that is not understood may change bytes: one KV head does, too."""
    return like_a_size(value) or (value == 1 and re.search("(^|[^q])kv|key_value", key) is not None)


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
