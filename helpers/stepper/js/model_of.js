// Any model's config.json as a model line, as Python's cost.config.model_of counts it: tests/js/model_of.test.mjs holds
// the two equal. What is known of families of models, and the words, stand in cost/families.json.
import KNOWN from "../../cost/families.json" with { type: "json" };
import { fillText } from "./format.js";
/** @import { Kind, Model } from "./cost" */
/** @typedef {Record<string, any>} Config */
/** A size by its name in families.json; it throws where that one is wrong. @typedef {(name: string, atLeast?: number) => number} Sizes */

/** @type {Config} */
const { keys: KEYS, usual: USUAL, formulas, ...known } = KNOWN;
/** @type {Config} */
const FAMILIES = Object.fromEntries(
  Object.entries(known.families).flatMap(([names, has]) => names.split(" ").map((name) => [name, has])),
);
/** Formulas of attention. @type {Record<string, string>} */
const PARTS = { full: "grouped", window: "grouped", latent: "latent", state: "linear" };
const READ = new Set([...Object.keys(USUAL), ...Object.values(KEYS).flat()]); // keys that hold a size
const [REFUSED, HARMLESS] = [new RegExp(known.refused), new RegExp(known.harmless)];
const [MOST, MOST_LAYERS] = [1e8, 1e4];

/** @param {unknown} x @returns {x is Config} */
const isObject = (x) => typeof x === "object" && x !== null && !Array.isArray(x);

/** Neither null, false, 0, "" nor empty. @param {any} x */
const isSet = (x) => (typeof x === "object" && x !== null ? Object.keys(x).length > 0 : Boolean(x));

/** Whether a value may change bytes or time: yes, a whole number over 1, a list or object that is not empty.
 * @param {any} x */
const likeASize = (x) => (typeof x === "object" ? isSet(x) : x === true || (Number.isInteger(x) && x > 1));

/** A value as config.json has it, or its beginning. @param {unknown} value */
const written = (value) => JSON.stringify(value).replace(/^(.{40})(.+)$/s, "$1…");

/** @param {string} name @param {Record<string, string | number>} values */
const refusal = (name, values) => new Error(fillText(known.refusals[name], values));

/** The model line that a config describes. Error where a size is missing or wrong, or layers are of a kind that is not
 * counted. @param {unknown} outer what config.json holds @returns {Model} */
export function modelOf(outer) {
  if (!isObject(outer)) throw refusal("object", { got: written(outer) });
  const [config, leftOut] = textModel(outer);
  for (const [key, value] of Object.entries(config))
    if (likeASize(value) && REFUSED.test(key)) throw refusal("refused", { key, got: written(value) });
    else if (!familyOf(config) && known.activations.includes(key) && !["silu", "swish", null].includes(value))
      throw refusal("activation", { key, got: written(value), type: written(config.model_type ?? null) });
  const n = sizesOf(config);
  const [kinds, sparse] = [kindsOf(config, n), sparseOf(config, n)];
  const plain = ["L", "H", "Hkv", n("R") ? "Dn" : "D", "C", sparse ? "M" : "F", "V", "P"].map((name) =>
    n(name),
  );
  const [L, H, , , C, , V, P] = plain;
  let total = n("ends") + L * n("norms");
  if (sparse < L) total += (L - sparse) * n("MLP");
  if (sparse) total += sparse * n("MoE");
  const counted = new Map(kinds.map((kind) => [kind, kinds.filter((x) => x === kind).length]));
  for (const [kind, layers] of counted) total += layers * n(PARTS[kind]);
  /** @type {Pick<Model, "experts" | "n_active">} */
  let read = { experts: null, n_active: null };
  if (sparse && n("K") !== n("E")) {
    const [of, chosen] = [n("E"), n("K")];
    if (chosen > of) throw refusal("chosen", { got: chosen, of });
    const active = total - n("!tied") * V * C - sparse * (of - chosen) * n("expert");
    read = { experts: [of, chosen], n_active: active };
  }
  const lines = [...counted].map(([kind, layers]) => lineOf(kind, layers, n));
  const [path, kind] = [outer._name_or_path, config.model_type].map((x) => (typeof x === "string" ? x : ""));
  const sizes = { hidden_size: C, vocab_size: V, tied: n("tied") > 0, n_parameters: total, ...read };
  const size = total >= 1e9 ? `${billions(total)}B` : `${Math.floor(total / 1e6 + 0.5)}M`;
  return {
    name: path || `${kind || "a model"} ${size}`,
    ...{ ...sizes, max_seq_len: P, n_layers: L, n_heads: H, kinds: lines },
    notes: [...notesOf(config, leftOut, counted, n, total, read.n_active)],
  };
}

/** The keys of the text model, and the parts that are left out. @param {Config} outer @returns {[Config, string[]]} */
function textModel(outer) {
  const text = known.inner.map((/** @type {string} */ key) => outer[key]).find(isObject);
  if (!text) return [outer, []];
  /** @param {[string, unknown]} entry */
  const isPart = ([key, value]) =>
    isObject(value) && key.endsWith("_config") && !Object.hasOwn(known.asides, key);
  const entries = Object.entries(outer);
  const tied = entries.filter(([key]) => KEYS.tied.includes(key));
  const others = entries.filter((entry) => !isPart(entry));
  const leftOut = entries.filter((entry) => isPart(entry) && entry[1] !== text);
  return [
    { ...Object.fromEntries([...others, ...Object.entries(text), ...tied]) },
    leftOut.map(([key]) => key),
  ];
}

/** @param {Config} config @returns {Sizes} 1 for a yes, or what a formula comes to; "!x" is 1 where x is 0 */
function sizesOf(config) {
  const usualHere = { ...USUAL, ...familyOf(config) };

  /** @type {Sizes} */
  function number(name, atLeast = 0) {
    if (name in formulas) return sum(formulas[name]);
    if (/^\d+$/.test(name)) return Number(name);
    if (name[0] === "!") return number(name.slice(1)) ? 0 : 1;
    /** @type {string[]} */
    const keys = KEYS[name] ?? [name];
    const there = keys.filter((key) => Object.hasOwn(config, key));
    const key = there.find((one) => config[one] !== null) ?? there[0] ?? keys[0];
    let [value, usual] = [config[key] ?? null, USUAL[keys[0]]];
    if (value === null) {
      // A key that is not there is as in its family; null is as in most.
      value = (there.length ? usual : null) ?? usualHere[keys[0]] ?? null;
      if (typeof value === "string") value = sum(value);
    }
    const got = there.length ? written(config[key]) : "missing";
    if (typeof usual === "boolean") {
      if (typeof value !== "boolean") throw refusal("flag", { key, got });
      return Number(value);
    }
    const [least, most] = [usual === 0 ? atLeast : 1, name === "L" ? MOST_LAYERS : MOST];
    if (Number.isInteger(value) && least <= value && value <= most) return value;
    throw refusal("size", { key, got, least, most });
  }

  /** A sum of products, "2 C F + C"; "/H" divides, rounded down; what follows a 0 is not asked.
   * @param {string} formula */
  function sum(formula) {
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

/** What the code of a family has, or undefined. @param {Config} config @returns {Config | undefined} */
const familyOf = ({ model_type: type }) =>
  typeof type === "string" && Object.hasOwn(FAMILIES, type) ? FAMILIES[type] : undefined;

/** What each layer keeps: a key of PARTS. @param {Config} config @param {Sizes} n @returns {string[]} */
function kindsOf(config, n) {
  const [L, full, types] = [n("L"), n("R") ? "latent" : "full", config.layer_types ?? null];
  if (types === null) {
    const windows = full === "full" && n("use_sliding_window") && n("window");
    const other = "linear_num_value_heads" in config ? "state" : windows ? "window" : full;
    const [every, first] = [n("every"), n("max_window_layers")];
    return Array.from({ length: L }, (_, i) =>
      i < first || (every && (i + 1) % every === 0) ? full : other,
    );
  }
  const kindsHere = full === "full" ? known.layer_types : { full_attention: full };
  if (!Array.isArray(types) || types.length !== L || !types.every((type) => Object.hasOwn(kindsHere, type)))
    throw refusal("kinds", { got: written(types), L, kinds: Object.keys(kindsHere).join(", ") });
  return types.map((type) => kindsHere[type]);
}

/** How many layers have experts. @param {Config} config @param {Sizes} n */
function sparseOf(config, n) {
  const L = n("L");
  if (!n("E")) return 0;
  const [kinds, dense] = ["mlp_layer_types", "mlp_only_layers"].map((key) => {
    const value = isSet(config[key]) ? config[key] : [];
    if (!Array.isArray(value)) throw refusal("list", { key, got: written(value) });
    return value;
  });
  if (kinds.length === L) return kinds.filter((kind) => kind === "sparse").length;
  const [first, every] = [n("first_k_dense_replace"), n("sparse_every")];
  const layers = Array.from({ length: L }, (_, i) => i);
  return layers.filter((i) => i >= first && (i + 1) % every === 0 && !dense.includes(i)).length;
}

/** A line of `kinds`. @param {string} kind @param {number} layers @param {Sizes} n @returns {Kind} */
function lineOf(kind, layers, n) {
  const line = { layers, window: null, state: kind === "state", kv_heads: null };
  if (kind === "state") return { ...line, row: n("state"), pair: 4 * n("state") };
  if (kind === "latent")
    return { ...line, row: n("R") + n("Dr"), kv_heads: 1, pair: 2 * n("H") * (2 * n("R") + n("Dr")) };
  const [heads, width] = [n("Hkv"), n("D") + n("Dv")];
  return {
    ...line,
    window: kind === "window" ? n("window", 1) : null,
    row: heads * width,
    kv_heads: heads,
    pair: 2 * n("H") * width,
  };
}

/** What was counted how, what was not, and which keys are not known.
 * @param {Config} config @param {string[]} leftOut @param {Map<string, number>} counted @param {Sizes} n
 * @param {number} total @param {number | null} active */
function* notesOf(config, leftOut, counted, n, total, active) {
  if (!familyOf(config))
    yield fillText(known.notes.family, { type: written(config.model_type ?? null), all: billions(total) });
  if (leftOut.length) yield fillText(known.notes.inner, { keys: leftOut.join(", ") });
  for (const kind of ["window", "state", "latent"]) {
    const layers = counted.get(kind);
    if (layers)
      yield fillText(known.notes[kind], { n: layers, L: n("L"), window: kind === "window" ? n(kind) : 0 });
  }
  if (active !== null)
    yield fillText(known.notes.experts, { active: billions(active), all: billions(total) });
  for (const [key, aside] of Object.entries(known.asides)) if (isSet(config[key])) yield known.notes[aside];
  const sizes = Object.keys(config).filter((key) => !READ.has(key) && likeASize(config[key]));
  const unknown = sizes.filter((key) => !HARMLESS.test(key));
  if (unknown.length) yield fillText(known.notes.unknown, { keys: unknown.join(", ") });
}

/** A count in billions, to one decimal: 3.3, 671. @param {number} numbers */
const billions = (numbers) => String(Math.floor(numbers / 1e8 + 0.5) / 10);
