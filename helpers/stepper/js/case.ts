// The reader's own case, a model on a card and what is asked of them: as data, as steps of sliders, as an address.
import VIEW from "../view.json" with { type: "json" };
import type { Model, Card } from "./cost.ts";

export type Machines = { models: Model[]; cards: Card[] };
/** What the reader has chosen. `tokens`: in the cache of each user, null as recorded; `collective`: microseconds;
 * fractions reached in percent. */
export type Case = {
  model: Model;
  card: Card;
  tokens: number | null;
  users: number;
  newTokens: number;
  weightBits: number;
  kvBits: number;
  cards: number;
  collective: number;
  overlap: boolean;
  bandwidthReached: number;
  computeReached: number;
};

const SAY = VIEW.step_time;
export const FIELDS = SAY.fields;
export type Field = keyof typeof FIELDS;
const NUMBERS = Object.keys(FIELDS) as Field[];
const BITS = Object.keys(SAY.bits) as (keyof typeof SAY.bits)[];
const AT_FIRST = { model: "Llama-3.1-8B", card: "H100" }; // a model that people know, a card that many have rented

const PLAIN = {
  ...{ weightBits: 16, kvBits: 16, newTokens: 1, cards: 1, collective: 0, overlap: false },
  ...{ bandwidthReached: 100, computeReached: 100 },
};

/** The case at first. `wanted` has what differs, model and card by their names. */
export function caseAtFirst({ models, cards }: Machines, wanted: Record<string, any> = {}): Case {
  const { model, card, ...others } = { ...AT_FIRST, ...wanted };
  const named = {
    model: models.find(({ name }) => name === model) as Model,
    card: cards.find(({ name }) => name === card) as Card,
  };
  return { ...named, tokens: null, users: 1, ...PLAIN, ...others };
}

/** Whether a case is more than model, card of the table, tokens and users. */
export function isMore(chosen: Case) {
  const names = Object.keys(PLAIN) as (keyof typeof PLAIN)[];
  return chosen.card.name === SAY.own.name || names.some((name) => chosen[name] !== PLAIN[name]);
}

/** What stepTime takes by name. */
export function optionsOf({ users, weightBits, kvBits, cards, overlap, ...chosen }: Case) {
  return {
    ...{ users, weightBits, kvBits, cards, overlap },
    collective: chosen.collective / 1e6,
    bandwidthReached: chosen.bandwidthReached / 100,
    computeReached: chosen.computeReached / 100,
  };
}

/** A number that was typed, commas and all; null for what is none, or out of the field's range. */
export function typed(field: Field, text: string) {
  const plain = text.trim().replace(/,/g, "");
  const x = /^\d+\.?\d*$/.test(plain) ? Number(plain) : NaN;
  const { least, most } = FIELDS[field];
  const whole = Number.isInteger(x) || ["collective", "bandwidthReached", "computeReached"].includes(field);
  return whole && x >= least && x <= most ? x : null;
}

const ROUND = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];

/** The stops of a field's slider: every number of a short range, some ten in each power of ten of a long one. */
export function stopsOf(field: Field): number[] {
  const { least, most, slider = most } = FIELDS[field] as { least: number; most: number; slider?: number };
  if (slider <= 100) return [...Array(slider - least + 1).keys()].map((n) => n + least);
  const powers = [...Array(Math.log10(slider) + 1).keys()].map((n) => 10 ** n);
  const all = powers.flatMap((power) => ROUND.map((x) => Math.round(x * power * 10) / 10));
  return all.filter((x) => Number.isInteger(x) && x <= slider);
}

/** The stop that is nearest to a number, or that of null. */
export function stopAt(stops: (number | null)[], x: number | null) {
  const off = (stop: number | null) => (stop === x ? -1 : Math.abs((stop ?? Infinity) - (x ?? Infinity)));
  return stops.reduce((best: number, stop, i) => (off(stop) < off(stops[best]) ? i : best), 0);
}

// A model that the tables do not have stands in an address by its sizes: 4096,128256,0,…*32,2048,16384,,0,8
const SIZES = ["hidden_size", "vocab_size", "n_parameters", "max_seq_len", "n_layers", "n_heads"] as const;
const KIND = ["layers", "entry_size", "pair"] as const;

function sizesOf(model: Model) {
  const { tied, n_active, experts, kinds } = model;
  const plain = [...SIZES.map((name) => model[name]), tied ? 1 : 0, n_active, ...(experts ?? [null, null])];
  const layers = kinds.map((kind) => [
    ...KIND.map((name) => kind[name]),
    kind.window,
    kind.state ? 1 : 0,
    kind.kv_heads,
    ...(kind.chosen ? [kind.chosen] : []),
  ]);
  return [plain, ...layers].map((numbers) => numbers.map((x) => x ?? "").join(",")).join("*");
}

function modelOfSizes(name: string, text: string): Model | null {
  const lines = text.split("*").map((line) => line.split(",").map((x) => (x === "" ? null : Number(x))));
  const [plain, ...layers] = lines;
  const fits =
    plain.length === 10 &&
    layers.length > 0 &&
    layers.every((line) => [6, 7].includes(line.length) && line[5] !== 0 && line[6] !== 0);
  const known = lines.flat().every((x) => x === null || (Number.isSafeInteger(x) && x >= 0));
  /** Of a line the first so many, which must be there and over 0. */
  const named = (line: any[], names: readonly string[]) =>
    Object.fromEntries(names.map((one, i) => [one, line[i]]));
  const sound =
    fits && known && plain.slice(0, 6).every(Boolean) && layers.every((l) => l.slice(0, 3).every(Boolean));
  const [tied, n_active, of, chosen] = plain.slice(6);
  if (!sound || (of ?? 0) < (chosen ?? 0)) return null;
  const kinds = layers.map((line) => {
    const [window, state, kv_heads, chosen] = line.slice(3);
    return { ...named(line, KIND), window, state: state === 1, kv_heads, ...(chosen ? { chosen } : {}) };
  });
  const experts = of && chosen ? [of, chosen] : null;
  const sizes = { ...named(plain, SIZES), tied: tied === 1, n_active, experts, kinds, notes: [SAY.sizes] };
  return { name: name.slice(0, 100), ...sizes } as unknown as Model;
}

const GIB = 2 ** 30;
const UNITS = { memory_nbytes: GIB, bytes_per_second: 1e9, flops_per_second: 1e12 };

/** A card's memory in GiB, its GB/s and its TFLOP/s. */
export const cardNumbers = (card: Card) =>
  Object.entries(UNITS).map(([name, unit]) =>
    Number((card[name as keyof typeof UNITS] / unit).toPrecision(6)),
  );

/** A card of the reader's own, by such numbers; null where one of them is out of range. */
export function cardOf(numbers: number[]): Card | null {
  const { name, least, most } = SAY.own;
  if (numbers.length !== 3 || !numbers.every((x) => x >= least && x <= most)) return null;
  return {
    name,
    ...Object.fromEntries(Object.entries(UNITS).map(([one, unit], i) => [one, numbers[i] * unit])),
  } as Card;
}

/** The case as an address tells it, by names that begin with `prefix`; null for what needs no telling. */
export function toldCase(chosen: Case, { models, cards }: Machines, prefix = "") {
  const { model, card, tokens, overlap } = chosen;
  const told: Record<string, string | number | null> = {
    as: model.name,
    sizes: models.includes(model) ? null : sizesOf(model),
    on: card.name,
    card: cards.includes(card) ? null : cardNumbers(card).join(","),
  };
  for (const field of NUMBERS) told[FIELDS[field].address] = chosen[field];
  for (const bits of BITS) told[SAY.bits[bits].address] = chosen[bits];
  Object.assign(told, { [FIELDS.tokens.address]: tokens ?? "recorded", overlap: overlap ? "yes" : "no" });
  return Object.fromEntries(Object.entries(told).map(([name, value]) => [prefix + name, value]));
}

/** The case that an address tells; what it does not tell, or tells wrongly, is as in `first`, and the names of the
 * latter go to `wrong`. */
export function caseFrom(
  values: Map<string, string>,
  { models, cards }: Machines,
  first: Case,
  wrong: string[],
  prefix = "",
): Case {
  /** What is told under a name, as `read` takes it; `otherwise` where nothing is, or nothing right. */
  const told = <T>(name: string, otherwise: T, read: (text: string) => T | null | undefined) => {
    const text = values.get(prefix + name);
    if (text === undefined) return otherwise;
    const found = read(text) ?? null;
    if (found === null) wrong.push(prefix + name);
    return found ?? otherwise;
  };
  const byName =
    <T extends { name: string }>(list: T[]) =>
    (name: string) =>
      list.find((one) => one.name === name);
  const named = values.get(`${prefix}as`) ?? first.model.name;
  const own = values.has(`${prefix}sizes`);
  const model = own
    ? told("sizes", first.model, (text) => modelOfSizes(named, text))
    : told("as", first.model, byName(models));
  const card = values.has(`${prefix}card`)
    ? told("card", first.card, (text) => cardOf(text.split(",").map(Number)))
    : told("on", first.card, byName(cards));
  const chosen = { ...first, model, card };
  for (const field of NUMBERS) {
    const { address } = FIELDS[field];
    if (field === "tokens" && values.get(prefix + address) === "recorded" && first.tokens === null)
      chosen.tokens = null;
    else Object.assign(chosen, { [field]: told(address, first[field], (text) => typed(field, text)) });
  }
  for (const bits of BITS)
    chosen[bits] = told(SAY.bits[bits].address, first[bits], (text) =>
      SAY.formats.find((n) => String(n) === text),
    );
  chosen.overlap = told("overlap", first.overlap, (text) => ({ yes: true, no: false })[text]);
  return chosen;
}
