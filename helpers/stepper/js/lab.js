// What the lab counts: the recorded passes as if the prompt had another length, what has added up so far, and the shapes
// of a chosen model's tensors. tests/lab_cases.py does the same; nothing here asks the page.
import VIEW from "../view.json" with { type: "json" };
import { optionsOf } from "./case.js";
import { pairsOf, tokensUntilCompute } from "./cost.js";
import { fillText } from "./format.js";
import { sizeOf } from "./trace.js";
/** @import { Kind, Model } from "./cost.js" */
/** @import { Facts } from "./step_time.js" */
/** @import { Event, Run } from "./types" */

/** A pass of one user: `tokens` are processed behind `before` that are not; of them `fresh` for the first time; `logits`
 * meet the LM head.
 * @typedef {{ tokens: number, before: number, fresh: number, logits: number }} Pass */
/** @typedef {{ tokens: number, pairs: number, written: number, read: number, againTokens: number, againPairs: number }} Counts */

/** A recorded pass as if the prompt had `length` tokens instead of `prompt`; null leaves it as it was recorded.
 * @param {Pick<Event, "queries" | "part" | "phase">} event @param {number} prompt @param {number | null} length
 * @returns {Pass} */
export function passAt({ queries, part, phase }, prompt, length) {
  const recorded = (queries.at(-1) ?? -1) + 1; // tokens up to the newest one
  const seen = recorded + (length ?? prompt) - prompt;
  /** Of tokens up to the newest: as many, unless the prompt is among them. @param {number} tokens */
  const scaled = (tokens) => (tokens === recorded ? seen : tokens);
  const tokens = scaled(queries.length);
  const fresh = scaled(sizeOf(part.new));
  return { tokens, before: seen - tokens, fresh, logits: phase === "training" ? tokens : 1 };
}

/** Of a model's kinds of layers the one whose queries see most: full attention, or else the widest window.
 * @param {Pick<Model, "kinds">} model @returns {Kind} */
export function widestOf({ kinds }) {
  const reach = (/** @type {Kind} */ { state, window }) => (state ? 0 : (window ?? Infinity));
  return kinds.reduce((a, b) => (reach(b) > reach(a) ? b : a));
}

/** Rows of earlier tokens that a pass's queries see. @param {Kind} kind @param {number} before */
const rowsSeen = ({ window }, before) => Math.min(before, (window ?? Infinity) - 1);

/** What a pass counts in one layer, of one head and one user. `again` is what a cache spares, or what is processed again
 * without one: all that is not fresh.
 * @param {Pass} pass @param {Kind} kind @param {boolean} keeps @returns {Counts} */
export function countsOf({ tokens, before, fresh }, kind, keeps) {
  const seen = tokens + before;
  return {
    tokens,
    pairs: pairsOf(kind, before, tokens),
    written: keeps ? tokens : 0,
    read: keeps ? rowsSeen(kind, before) : 0,
    againTokens: seen - fresh,
    againPairs: pairsOf(kind, 0, seen - fresh),
  };
}

/** What this pass counts, and all passes so far; the training reference is in no sum.
 * @param {Run} run @param {Event} event @param {number} prompt @param {number | null} length @param {Kind} kind */
export function accumulated({ events, keeps }, event, prompt, length, kind) {
  /** @param {Event} one */
  const counts = (one) => countsOf(passAt(one, prompt, length), kind, keeps && one.counted);
  const now = counts(event);
  const names = /** @type {(keyof Counts)[]} */ (Object.keys(now));
  const passed = events.filter((one) => one.counted && one.index <= event.index).map(counts);
  const soFar = names.map((name) => [name, passed.reduce((sum, one) => sum + one[name], 0)]);
  return { now, soFar: /** @type {Counts} */ (Object.fromEntries(soFar)) };
}

/** KV heads and the numbers of a key and of a value in one: those of an operation for each, and K and V equally wide, but
 * for a latent, one list for all heads, whose value is a part of its key. @param {Kind} kind @param {number} nHeads */
export function headOf({ row, pair }, nHeads) {
  const both = pair / (2 * nHeads);
  const latent = row < both;
  return latent
    ? { latent, kvHeads: 1, k: row, v: both - row }
    : { latent, kvHeads: row / both, k: both / 2, v: both / 2 };
}

/** Shapes of each operation of a pass, in order: name of the operation and lengths; and the sizes of the formula.
 * @param {Pass} pass @param {Model} model */
export function shapesAt({ tokens: T, before, logits }, model) {
  const kind = widestOf(model);
  const { latent, kvHeads, k, v } = headOf(kind, model.n_heads);
  const [S, H, C] = [T + rowsSeen(kind, before), model.n_heads, model.hidden_size];
  /** @type {[string, number[]][]} */
  const operations = [
    ["x", [T, C]],
    ["q", [H, T, k]],
    ["new", [kvHeads, T, k]],
    ["all", [kvHeads, S, k]],
    ["scores", [H, T, S]],
    ["contexts", [H, T, v]],
    ["mlp", [T, C]],
    ["logits", [logits, model.vocab_size]],
  ];
  return { operations, formula: { T, S, k, v, latent } };
}

/** What there is to learn from a pass behind a prompt of so many tokens, in a sentence or two.
 * @param {{ phase: string, keeps: boolean, prompt: number }} ran @param {Facts} facts */
export function insightOf({ phase, keeps, prompt }, { chosen, pass: { tokens }, step, bound, longest }) {
  const { users, model, card } = chosen;
  const [memory, compute] = [step.rows + step.weights, step.attention + step.products];
  /** @param {number} a @param {number} b */
  const times = (a, b) => (a / b >= 9.95 ? Math.round(a / b).toLocaleString("en") : (a / b).toFixed(1));
  const computes = bound === "compute-bound";
  const until = phase === "prefill" ? tokensUntilCompute(model, card, optionsOf(chosen)) : null;
  /** @type {keyof typeof VIEW.lab.insights} */
  let kind = computes ? "users compute" : longest === "rows" ? "rows" : users > 1 ? "together" : "alone";
  if (phase === "training") kind = "training";
  else if (phase === "prefill") kind = computes ? "prefill compute" : until ? "prefill" : "prefill never";
  else if (!keeps) kind = "again";
  return fillText(VIEW.lab.insights[kind], {
    ...{ tokens, users, until, prompt, all: tokens * users },
    ...{ longer: times(compute, memory), fewer: times(memory, compute) },
  });
}
