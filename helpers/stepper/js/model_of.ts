// Any model's config.json as a model line, as Python's cost.config.model_of counts it: tests/js/model_of.test.mjs holds
// the two equal. What is known of families of models, and the words, stand in cost/families.json.
import KNOWN from "../../cost/families.json" with { type: "json" };
import { fillText } from "./format.ts";
import type { LayerType, Model } from "./cost";

type Config = Record<string, any>;
/** A model line; `n_parameters` null where KV entries alone are counted, and the first note says why. */
type Line = Omit<Model, "n_parameters" | "notes"> & { n_parameters: number | null; notes: string[] };
/** A size by its name in families.json; it throws where that one is wrong. */
type Sizes = (name: string, atLeast?: number) => number;

const { keys: KEYS, usual: USUAL, formulas, ...known }: Config = KNOWN;
/** A table by families, out of one with several to a key. */
const byName = (table: Config): Config =>
  Object.fromEntries(
    Object.entries(table).flatMap(([names, has]) => names.split(" ").map((name) => [name, has])),
  );
const [FAMILIES, DEFAULTS] = [byName(known.families), byName(known.defaults)];
/** Formulas of attention. */
const PARTS: Record<string, string> = {
  full: "grouped",
  window: "grouped",
  latent: "latent",
  state: "linear",
  selected: "selected",
  reselected: "latent", // with the selection of an earlier layer, so without an indexer
};
const READ = new Set([...Object.keys(USUAL), ...Object.values(KEYS).flat()]); // keys that hold a size
const [REFUSED, HARMLESS, ENDS, PART, ENTRIES] = [
  "refused",
  "harmless",
  "harmless_ends",
  "part",
  "entries",
].map((name) => new RegExp(known[name]));
const [MOST, MOST_LAYERS] = [1e8, 1e4];

const isObject = (x: unknown): x is Config => typeof x === "object" && x !== null && !Array.isArray(x);

/** Neither null, false, 0, "" nor empty. */
const isSet = (x: any) => (typeof x === "object" && x !== null ? Object.keys(x).length > 0 : Boolean(x));

/** Whether a value may change bytes or time: yes, a whole number over 1, a list or object that is not empty. */
const likeASize = (x: any) =>
  typeof x === "object" ? isSet(x) : x === true || (Number.isInteger(x) && x > 1);

/** Whether a key that is not understood may change bytes: one KV head does, too. */
const weighs = (key: string, value: any) =>
  likeASize(value) || ((value === 1 || value === true) && /(^|[^q])kv|key_value/.test(key));

/** A value as config.json has it, or its beginning. */
const written = (value: unknown) => JSON.stringify(value).replace(/^(.{40})(.+)$/s, "$1…");

const refusal = (name: string, values: Record<string, string | number>) =>
  new Error(fillText(known.refusals[name], values));

/** A size is not known; where only the parameters need it, KV entries are counted all the same. */
class UnknownParameters extends Error {}

/** The model that a config describes, for what needs its parameters. Error, too, where they are not known. */
export function modelOf(outer: unknown): Model {
  const { n_parameters, ...line } = lineOf(outer);
  if (n_parameters === null) throw new Error(`${line.name}: ${line.notes[0]}`);
  return { ...line, n_parameters };
}

/** The model line that a config describes. Error where a size is missing or wrong, or layers are of a kind that is not
 * counted. */
export function lineOf(outer: unknown): Line {
  if (!isObject(outer)) throw refusal("object", { got: written(outer) });
  const [config, leftOut] = textModel(outer);
  for (const [key, value] of Object.entries(config))
    if (likeASize(value) && REFUSED.test(key)) throw refusal("refused", { key, got: written(value) });
  const changes = changesOf(config);
  const n = sizesOf(config);
  const kinds = kindsOf(config, n);
  for (const key of unreadOf(config, n, "entries"))
    throw refusal("unread", { key, got: written(config[key]) });
  const [L, own] = [kinds.length, ownOf(n)];
  const counted = new Map(kinds.map((kind) => [kind, kinds.filter((x) => x === kind).length]));
  const lines: Map<string, LayerType> = new Map();
  kinds.slice(0, own).forEach((kind, i) => {
    for (const line of layerTypesOf(kind, i in changes ? sizesOf({ ...config, ...changes[i] }) : n)) {
      const same = JSON.stringify(line);
      lines.set(same, { ...line, layers: (lines.get(same)?.layers ?? 0) + 1 });
    }
  });
  const n_heads = n("H");
  for (const name of ["Hkv", n("R") ? "Dn" : "D"]) n(name);
  let [why, sizes] = ["", null as ReturnType<typeof countedOf> | null];
  try {
    sizes = countedOf(config, n, counted);
  } catch (error) {
    if (!(error instanceof UnknownParameters)) throw error;
    why = error.message;
  }
  const {
    total = null,
    active = null,
    experts = null,
    tied = false,
    plain = ["C", "F", "V", "P"].map((name) => orZero(n, name)),
  } = sizes ?? {};
  const [path, kind] = [outer._name_or_path, config.model_type].map((x) => (typeof x === "string" ? x : ""));
  const size =
    total === null ? "" : total >= 1e9 ? ` ${billions(total)}B` : ` ${Math.floor(total / 1e6 + 0.5)}M`;
  const [hidden_size, , vocab_size, max_seq_len] = plain;
  return {
    name: path || `${kind || "a model"}${size}`,
    ...{ hidden_size, vocab_size, max_seq_len, tied, n_parameters: total, n_active: active, experts },
    ...{ n_layers: L, n_heads },
    kinds: [...lines.values()],
    notes: [...notesOf(config, leftOut, counted, n, own, why, total, active)],
  };
}

/** The parameters, and what they need. UnknownParameters where that is not known. */
function countedOf(config: Config, n: Sizes, counted: Map<string, number>) {
  const type = written(config.model_type ?? null);
  if (familyOf(config)?.parts === false) throw unknownParameters("parts", { type });
  for (const [key, value] of Object.entries(config))
    if (!familyOf(config) && known.activations.includes(key) && !["silu", "swish", null].includes(value))
      throw unknownParameters("activation", { key, got: written(value), type });
  const shared = ownOf(n) < n("L") ? ["num_kv_shared_layers"] : [];
  if (isSet(config.per_layer_config)) shared.push("per_layer_config");
  for (const key of [...unreadOf(config, n, "part"), ...shared])
    throw unknownParameters("unread parts", { key, got: written(config[key]) });
  const [L, sparse] = [n("L"), sparseOf(config, n)];
  const plain = ["C", sparse ? "M" : "F", "V", "P"].map((name) => n(name));
  const [C, , V] = plain;
  let total = n("ends") + L * n("norms");
  if (sparse < L) total += (L - sparse) * n("MLP");
  if (sparse) total += sparse * n("MoE");
  for (const [kind, layers] of counted) total += layers * n(PARTS[kind]);
  const sizes = { plain, total, tied: n("tied") > 0 };
  n("qkv_bias");
  if (!sparse || n("K") === n("E")) return { ...sizes, experts: null, active: null };
  const [of, chosen] = [n("E"), n("K")];
  if (chosen > of) throw refusal("chosen", { got: chosen, of });
  const active = total - n("!tied") * V * C - sparse * (of - chosen) * n("expert");
  return { ...sizes, experts: [of, chosen] as [number, number], active };
}

const unknownParameters = (name: string, values: Record<string, string | number>) =>
  new UnknownParameters(fillText(known.refusals[name], values));

/** A size, 0 where it is not known, or is not one number. */
function orZero(n: Sizes, name: string) {
  try {
    return n(name);
  } catch {
    return 0;
  }
}

/** How many layers keep entries of their own; those after them read these. */
function ownOf(n: Sizes) {
  const [shared, L] = [n("num_kv_shared_layers"), n("L")];
  if (shared < L) return L - shared;
  throw refusal("size", { key: "num_kv_shared_layers", got: written(shared), least: 0, most: L - 1 });
}

/** The keys that are not understood and concern "entries", a "part" of the weights, or "others". */
function unreadOf(config: Config, n: Sizes, what: string) {
  const [L, family] = [n("L"), familyOf(config) ?? {}];
  return Object.keys(config).filter((key) => {
    if (READ.has(key) || key in family || HARMLESS.test(key)) return false;
    const value = config[key];
    const names = Object.entries({ [key]: value, ...(isObject(value) ? value : {}) })
      .filter(([name, x]) => weighs(name, x))
      .map(([name]) => name);
    const has = (some: RegExp) => names.some((name) => some.test(name));
    const long = Array.isArray(value) && value.length === L && L > 1;
    const kind = long ? "entries" : has(PART) ? "part" : has(ENTRIES) ? "entries" : "others";
    return names.length > 0 && kind === what && (kind === "entries" || !ENDS.test(key));
  });
}

/** The keys of the text model, and the parts that are left out. */
function textModel(outer: Config): [Config, string[]] {
  let config = outer;
  const leftOut: string[] = [];
  const isPart = ([key, value]: [string, unknown]) =>
    isObject(value) && key.endsWith("_config") && !Object.hasOwn(known.asides, key);
  for (;;) {
    const at = known.inner.find((key: string) => isObject(config[key]));
    if (!at) {
      const inside = known.flattened.map((key: string) => (isObject(config[key]) ? config[key] : {}));
      return [Object.assign({}, config, ...inside), leftOut];
    }
    const entries = Object.entries(config);
    leftOut.push(...entries.filter((entry) => isPart(entry) && entry[0] !== at).map(([key]) => key));
    const tied = entries.filter(([key]) => KEYS.tied.includes(key));
    // layers and heads under keys that are not understood are not the text's
    const others = entries.filter(
      (entry) => !isPart(entry) && (READ.has(entry[0]) || !(PART.test(entry[0]) || ENTRIES.test(entry[0]))),
    );
    config = Object.fromEntries([...others, ...Object.entries(config[at]), ...tied]);
  }
}

/** What per_layer_config changes, by layers. */
function changesOf({ per_layer_config: each }: Config): Record<number, Config> {
  if (!isSet(each)) return {};
  const entries = isObject(each) ? Object.entries(each) : [["", each]];
  for (const [i, changes] of entries)
    if (!/^\d{1,5}$/.test(i) || !isObject(changes) || !Object.keys(changes).every((key) => READ.has(key)))
      throw refusal("unread", { key: "per_layer_config", got: written(each) });
  return Object.fromEntries(entries.map(([i, changes]) => [Number(i), changes]));
}

/** Sizes by name: 1 for a yes, or what a formula comes to; "!x" is 1 where x is 0. */
function sizesOf(config: Config): Sizes {
  const [family, defaults] = [familyOf(config) ?? {}, defaultsOf(config)];
  const usualHere = { ...USUAL, ...family };

  function number(name: string, atLeast = 0): number {
    const formula = formulas[name] ?? (name in KEYS ? family[name] : null);
    if (formula) return sum(formula);
    if (/^\d+$/.test(name)) return Number(name);
    if (name[0] === "!") return number(name.slice(1)) ? 0 : 1;
    const keys: string[] = KEYS[name] ?? [name];
    const there = keys.filter((key) => Object.hasOwn(config, key));
    const key = there.find((one) => config[one] !== null) ?? there[0] ?? keys[0];
    let [value, usual] = [config[key] ?? null, USUAL[keys[0]]];
    if (value === -1 && name === "last_sparse") value = null;
    if (value === null) {
      // A key that is not there is as in its family; null is as in most.
      value = (there.length ? usual : null) ?? defaults[name] ?? usualHere[keys[0]] ?? null;
      if (typeof value === "string") value = sum(value);
      if (value === null)
        throw unknownParameters("missing", { key, type: written(config.model_type ?? null) });
    }
    if (name === "every" && typeof value === "string" && /^L*G$/.test(value)) value = value.length;
    const got = written(value);
    if (typeof usual === "boolean") {
      if (typeof value !== "boolean") throw refusal("flag", { key, got });
      return Number(value);
    }
    const [least, most] = [usual === 0 ? atLeast : 1, name === "L" ? MOST_LAYERS : MOST];
    if (Number.isInteger(value) && least <= value && value <= most) return value;
    throw refusal("size", { key, got, least, most });
  }

  /** A sum of products, "2 C F + C"; "/H" divides, rounded down; what follows a 0 is not asked. */
  function sum(formula: string) {
    let total = 0;
    for (const term of formula.split(" + ")) {
      let product = 1;
      for (const name of term.split(" "))
        if (product && name[0] === "/") product = Math.floor(product / number(name.slice(1)));
        else if (product) product *= number(name);
      total += product;
    }
    return total;
  }
  return number;
}

/** What the code of a family has, or undefined. */
const familyOf = ({ model_type: type }: Config): Config | undefined =>
  typeof type === "string" && Object.hasOwn(FAMILIES, type) ? FAMILIES[type] : undefined;

/** Sizes that the class of a family takes where a config says none. */
const defaultsOf = ({ model_type: type }: Config): Config =>
  typeof type === "string" && Object.hasOwn(DEFAULTS, type) ? DEFAULTS[type] : {};

/** Whether a window in the config is one in the code of the family. */
const hasWindows = (config: Config) => "sliding_window" in (familyOf(config) ?? { sliding_window: 0 });

/** What each layer keeps: a key of PARTS. */
function kindsOf(config: Config, n: Sizes): string[] {
  const [L, full, sparse] = [n("L"), n("R") ? "latent" : "full", config.sparse_attention_freq];
  let types = config.layer_types ?? null;
  if (types === null && Array.isArray(sparse))
    types = sparse.map((x) => (isSet(x) ? "indexed_attention" : "full_attention"));
  let kinds: string[];
  if (types === null) {
    const windows = full === "full" && hasWindows(config) && n("use_sliding_window") && n("window");
    const limited = n("chosen") ? "selected" : windows ? "window" : full;
    const other = "linear_num_value_heads" in config ? "state" : limited;
    const [every, first] = [n("every"), n("max_window_layers")];
    kinds = Array.from({ length: L }, (_, i) =>
      i < first || (every && (i + 1) % every === 0) ? full : other,
    );
  } else {
    const kindsHere = known[full === "full" ? "layer_types" : "latent_layer_types"];
    if (!Array.isArray(types) || types.length !== L || !types.every((type) => Object.hasOwn(kindsHere, type)))
      throw refusal("layer_types", { got: written(types), L, known: Object.keys(kindsHere).join(", ") });
    kinds = types.map((type) =>
      kindsHere[type] === "window" && !hasWindows(config) ? full : kindsHere[type],
    );
  }
  if (!kinds.includes("selected")) return kinds;
  const own = indexersOf(config, n);
  return kinds.map((kind, i) => (kind === "selected" && !own[i] ? "reselected" : kind));
}

/** Whether each layer selects tokens itself, and not as an earlier one did. */
function indexersOf(config: Config, n: Sizes): boolean[] {
  const [L, key] = [n("L"), isSet(config.indexer_types) ? "indexer_types" : "index_topk_pattern"];
  const modes = config[key];
  if (!isSet(modes)) {
    const [every, first] = [n("index_every"), n("index_first")];
    return Array.from({ length: L }, (_, i) => Math.max(i - first + 1, 0) % every === 0);
  }
  const list = typeof modes === "string" ? [...modes] : modes;
  const fits = Array.isArray(list) && list.length === L;
  if (!fits || !list.every((mode) => ["F", "S", "full", "shared"].includes(mode)))
    throw refusal("indexers", { key, got: written(modes), L });
  return list.map((mode) => mode === "F" || mode === "full");
}

/** How many layers have experts. */
function sparseOf(config: Config, n: Sizes) {
  const L = n("L");
  if (!n("E")) return 0;
  const [kinds, dense] = ["mlp_layer_types", "mlp_only_layers"].map((key) => {
    const value = isSet(config[key]) ? config[key] : [];
    if (!Array.isArray(value)) throw refusal("list", { key, got: written(value) });
    return value;
  });
  if (kinds.length === L) return kinds.filter((kind) => kind === "sparse").length;
  const [first, last, every] = ["first_sparse", "last_sparse", "sparse_every"].map((name) => n(name));
  const layers = Array.from({ length: L }, (_, i) => i);
  return layers.filter((i) => first <= i && i <= last && (i + 1) % every === 0 && !dense.includes(i)).length;
}

/** Lines of `kinds`, for one layer: itself, and its indexer if it has one. */
function layerTypesOf(kind: string, n: Sizes): LayerType[] {
  if (!kind.includes("selected")) return [layerTypeOf(kind, n)];
  const entry = layerTypeOf(n("R") ? "latent" : "all", n);
  const indexer = () => {
    const [heads, entry_size] = [n("Hi", 1), n("Di", 1)];
    return { ...entry, kv_heads: 1, entry_size, pair: 2 * heads * entry_size };
  };
  const own = kind === "selected" ? [indexer()] : [];
  return [{ ...entry, chosen: n("chosen", 1) }, ...own];
}

/** A line of `kinds`, for one layer without an indexer. */
function layerTypeOf(kind: string, n: Sizes): LayerType {
  const line = { layers: 1, window: null, state: kind === "state", kv_heads: null };
  if (kind === "state") return { ...line, entry_size: n("state"), pair: 4 * n("state") };
  if (kind === "latent")
    return { ...line, entry_size: n("R") + n("Dr"), kv_heads: 1, pair: 2 * n("H") * (2 * n("R") + n("Dr")) };
  const names = kind === "full" ? ["full_heads", "full_dim", "full_v_dim"] : ["Hkv", "D", "Dv"];
  const [heads, k, v] = names.map((name) => n(name));
  return {
    ...line,
    window: kind === "window" ? n("window", 1) : null,
    entry_size: heads * (k + v),
    kv_heads: heads,
    pair: 2 * n("H") * (k + v),
  };
}

/** What was counted how, what was not, and which keys are not known. */
function* notesOf(
  config: Config,
  leftOut: string[],
  counted: Map<string, number>,
  n: Sizes,
  own: number,
  why: string,
  total: number | null,
  active: number | null,
) {
  const [L, type] = [n("L"), written(config.model_type ?? null)];
  if (total === null) yield fillText(known.notes.uncounted, { why });
  else if (!familyOf(config)) yield fillText(known.notes.family, { type, all: billions(total) });
  const names = Object.keys(defaultsOf(config)).map((name) => [name, KEYS[name] ?? [name]]);
  const left = names.filter(([, keys]) => !keys.some((key: string) => Object.hasOwn(config, key)));
  const sizes = left.map(([name, keys]) => `${keys[0]} ${n(name).toLocaleString("en")}`);
  if (sizes.length) yield fillText(known.notes.defaults, { keys: sizes.join(", ") });
  if (leftOut.length) yield fillText(known.notes.inner, { keys: leftOut.join(", ") });
  const isWindow = (name: string) =>
    Object.hasOwn(known.layer_types, name) && known.layer_types[name] === "window";
  if (!hasWindows(config) && (n("window") || (config.layer_types ?? []).some(isWindow)))
    yield fillText(known.notes["no windows"], { type });
  const LIMIT: Record<string, string> = { window: "window", selected: "chosen" };
  for (const kind of ["window", "state", "latent", "selected"]) {
    // "selected" is in "reselected", too
    const layers = [...counted].reduce((sum, [name, count]) => sum + (name.includes(kind) ? count : 0), 0);
    if (counted.has(kind)) yield fillText(known.notes[kind], { n: layers, L, limit: n(LIMIT[kind] ?? "0") });
  }
  if (own < L) yield fillText(known.notes.shared, { n: L - own, L });
  if (active !== null && total !== null)
    yield fillText(known.notes.experts, { active: billions(active), all: billions(total) });
  const asides = Object.entries<string>(known.asides).filter(([key]) => isSet(config[key]));
  for (const aside of new Set(asides.map(([, one]) => one))) yield known.notes[aside];
  const unknown = unreadOf(config, n, "others");
  if (unknown.length) yield fillText(known.notes.unknown, { keys: unknown.join(", ") });
}

/** A count in billions, to one decimal: 3.3, 671. */
const billions = (numbers: number) => String(Math.floor(numbers / 1e8 + 0.5) / 10);
