// The cost strip's facts: what would bound this pass if a model and a card of one's choice ran it.
import VIEW from "../view.json" with { type: "json" };
import { boundOf, stepTime, tokensUntilArithmetic, usersThatFit } from "./cost.js";
import { fillText } from "./format.js";
/** @import { Event, Frame } from "./types" */

/** @typedef {import("./cost.js").Model} Model @typedef {import("./cost.js").Card} Card*/
/** Of one pass: tokens that each user runs, tokens in the cache, users, tokens that meet the LM head.
 * @typedef {{ tokens: number, before: number, users: number, logits: number }} Pass */
/** What the reader has chosen: indices of the two tables, tokens of text (null: as recorded), users.
 * @typedef {{ model: number, card: number, text: number | null, users: number }} Choice */
/** What is asked of an event: its phase, whether its run keeps rows, its tokens, and the rows that it read.
 * @typedef {{ phase: string, keeps: boolean, tokens: number, before: number }} Ran */

const SAY = VIEW.strip;
export const TEXTS = [null, 100, 1000, 10000, 100000];
export const USERS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
const AT_FIRST = { model: "Llama-3.1-8B", card: "H100" }; // a model that people know, a card that many have rented

/** @typedef {{ models: Model[], cards: Card[] }} Machines */

/** @param {{ name: string }[]} list @param {string | undefined} name */
const indexOf = (list, name) => list.findIndex((one) => one.name === name);

/** @param {Machines} machines @returns {Choice} */
export function choiceAtFirst({ models, cards }) {
  return {
    model: indexOf(models, AT_FIRST.model),
    card: indexOf(cards, AT_FIRST.card),
    text: null,
    users: 1,
  };
}

/** The choice as an address tells it. @param {Choice} choice @param {Machines} machines */
export function toldChoice({ model, card, text, users }, { models, cards }) {
  return { as: models[model].name, on: cards[card].name, text: text ?? "recorded", users };
}

/** The choice that an address tells; what it does not know is as at first, and its name goes to `wrong`.
 * @param {Map<string, string>} values @param {Machines} machines @param {string[]} wrong @returns {Choice} */
export function choiceFrom(values, machines, wrong) {
  const { models, cards } = machines;
  const first = choiceAtFirst(machines);
  /** Where among its names a value stands. @param {string} name @param {(string | number | null)[]} names */
  const told = (name, names) => {
    const at = names.findIndex((one) => String(one ?? "recorded") === values.get(name));
    if (at < 0 && values.has(name)) wrong.push(name);
    return at < 0 ? null : at;
  };
  const as = told(
    "as",
    models.map((one) => one.name),
  );
  const on = told(
    "on",
    cards.map((one) => one.name),
  );
  const [text, users] = [told("text", TEXTS), told("users", USERS)];
  return {
    model: as ?? first.model,
    card: on ?? first.card,
    text: TEXTS[text ?? 0],
    users: USERS[users ?? 0],
  };
}

/** What the strip asks of an event. @param {Event} event @param {boolean} keeps @returns {Ran} */
export function ranIn({ counts, queries, phase }, keeps) {
  return { phase, keeps, tokens: queries.length, before: counts.rows_read };
}

/** Beside this pass the first of the other kinds in its run, to compare with. @param {Frame} frame
 * @returns {[string, Ran][]} */
export function comparedWith({ event, run }) {
  const wanted = ["prefill", "decode"].filter((phase) => phase !== event.phase);
  const first = wanted.map((phase) => run.events.find((one) => one.phase === phase));
  return first.flatMap((one) => (one ? [[one.name, ranIn(one, run.keeps)]] : []));
}

const PREFIXES = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
  [1e-3, "m"],
  [1e-6, "µ"],
  [1e-9, "n"],
];

/** Three digits with the prefix that fits: 15.0 GB, 4.48 ms. @param {number} x @param {string} unit */
export function formatUnit(x, unit) {
  const [size, prefix] = PREFIXES.find(([size]) => x >= Number(size) * 0.9995) ?? [1, ""];
  const scaled = x / Number(size);
  const digits = x === 0 || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  return `${scaled.toFixed(digits)} ${prefix}${unit}`;
}

/** The same pass with more text, or as it was: a prompt of so many tokens, or so many rows before the new token.
 * @param {Ran} ran @param {number | null} text @param {number} users @returns {Pass} */
export function asIf({ phase, keeps, tokens, before }, text, users) {
  const reads = before > 0 || (keeps && phase === "decode");
  const pass =
    text === null ? { tokens, before } : reads ? { tokens, before: text } : { tokens: text, before: 0 };
  return { ...pass, users, logits: phase === "training" ? pass.tokens : 1 };
}

/** All that the strip says of a pass. @param {Ran} ran @param {Model} model @param {Card} card @param {Choice} choice */
export function factsOf(ran, model, card, { text, users }) {
  const pass = asIf(ran, text, users);
  const { before, tokens: newTokens, logits } = pass;
  const step = stepTime(model, card, before, { users, newTokens, logits });
  const weights = step.weights * card.bytes_per_second;
  const rows = step.rows * card.bytes_per_second;
  const operations = (step.attention + step.products) * card.flops_per_second;
  return {
    ...{ pass, step, weights, rows, operations },
    bound: boundOf(step),
    intensity: operations / (weights + rows),
    ridge: card.flops_per_second / card.bytes_per_second,
    fit: usersThatFit(model, card, pass.before + pass.tokens),
    until: tokensUntilArithmetic(model, card, { users }),
  };
}

/** @typedef {ReturnType<typeof factsOf>} Facts */

/** Operations, bytes, the lower bound and what sets it. @param {Facts} facts */
export function workSentence({ weights, rows, operations, step, bound }) {
  return {
    work: fillText(SAY.work, {
      operations: formatUnit(operations, SAY.operations),
      bytes: formatUnit(weights + rows, "B"),
      weights: formatUnit(weights, "B"),
      rows: formatUnit(rows, "B"),
    }),
    least: formatUnit(step.total, "s"),
    bound: SAY.bounds[/** @type {keyof typeof SAY.bounds} */ (bound)],
  };
}

/** What there is to learn from this pass, in a sentence or two. @param {Ran} ran @param {Facts} facts */
export function insightOf({ phase, keeps }, { pass, step, bound, until }) {
  const { tokens, users } = pass;
  const [memory, arithmetic] = [step.rows + step.weights, step.attention + step.products];
  /** @param {number} a @param {number} b */
  const times = (a, b) => (a / b >= 9.95 ? Math.round(a / b).toLocaleString("en") : (a / b).toFixed(1));
  const values = {
    ...{ tokens, users, until, all: tokens * users },
    longer: times(arithmetic, memory),
    fewer: times(memory, arithmetic),
    products: `${Math.round((100 * step.products) / arithmetic)}%`,
  };
  /** @param {keyof typeof SAY.insights} name */
  const say = (name) => fillText(SAY.insights[name], values);
  if (phase === "training") return say("training");
  if (!keeps && phase === "decode") return say("again");
  if (phase === "prefill") {
    if (bound === "arithmetic") return say("prefill arithmetic");
    return `${say("prefill")} ${say(until === null ? "never" : tokens < until ? "until" : "rows")}`;
  }
  if (bound === "rows") return say("rows");
  if (bound === "arithmetic") return say("users arithmetic");
  return say(users === 1 ? "alone" : "together");
}

/** Whether so many users fit on the card. @param {Facts} facts @param {Model} model @param {Card} card */
export function fitSentence({ fit, pass }, model, card) {
  const tokens = pass.before + pass.tokens;
  const values = { fit, tokens, users: pass.users, model: model.name, card: card.name };
  const kind =
    fit > 0
      ? fit < pass.users
        ? "too many"
        : "fit"
      : model.n_parameters * 2 > card.memory_nbytes
        ? "none"
        : "no room";
  return fillText(SAY[kind], values);
}

/** Where a pass stands on the small roofline, 0 to 1 from the left and from the top; both axes are logarithmic.
 * @param {{ intensity: number, ridge: number }} facts */
export function placeOf({ intensity, ridge }) {
  const [least, most] = [-1, 4.5]; // powers of ten, operations a byte
  const [low, high] = [-4, 0.4]; // of the peak
  const share = Math.log10(Math.min(1, intensity / ridge));
  const clamp = (/** @type {number} */ x) => Math.max(0, Math.min(1, x));
  return {
    x: clamp((Math.log10(intensity) - least) / (most - least)),
    y: clamp(1 - (share - low) / (high - low)),
  };
}
