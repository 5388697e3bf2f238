// The cost strip's facts: which pass it speaks of, and what there is to learn from it.
import VIEW from "../view.json" with { type: "json" };
import { optionsOf } from "./case.js";
import { tokensUntilCompute } from "./cost.js";
import { fillText } from "./format.js";
/** @import { Facts, Pass } from "./step_time.js" */
/** @import { Event } from "./types" */

/** What is asked of an event: its phase, whether its run keeps rows, its tokens, and the rows that it read.
 * @typedef {{ phase: string, keeps: boolean, tokens: number, before: number }} Ran */

const SAY = VIEW.strip;

/** What the strip asks of an event. @param {Event} event @param {boolean} keeps @returns {Ran} */
export function ranIn({ counts, queries, phase }, keeps) {
  return { phase, keeps, tokens: queries.length, before: counts.rows_read };
}

/** The same pass with more text, or as it was: a prompt of so many tokens, or so many rows before the new token.
 * @param {Ran} ran @param {number | null} text @returns {Pass} */
export function asIf({ phase, keeps, tokens, before }, text) {
  const reads = before > 0 || (keeps && phase === "decode");
  const pass =
    text === null ? { tokens, before } : reads ? { tokens, before: text } : { tokens: text, before: 0 };
  return { ...pass, logits: phase === "training" ? pass.tokens : 1 };
}

/** What there is to learn from this pass, in a sentence or two. @param {Ran} ran @param {Facts} facts */
export function insightOf({ phase, keeps }, { chosen, pass, step, bound, longest }) {
  const [{ tokens }, { users, model, card }] = [pass, chosen];
  const [memory, compute] = [step.rows + step.weights, step.attention + step.products];
  /** @param {number} a @param {number} b */
  const times = (a, b) => (a / b >= 9.95 ? Math.round(a / b).toLocaleString("en") : (a / b).toFixed(1));
  const until = phase === "prefill" ? tokensUntilCompute(model, card, optionsOf(chosen)) : null;
  const values = {
    ...{ tokens, users, until, all: tokens * users },
    longer: times(compute, memory),
    fewer: times(memory, compute),
    products: `${Math.round((100 * step.products) / compute)}%`,
  };
  /** @param {keyof typeof SAY.insights} name */
  const say = (name) => fillText(SAY.insights[name], values);
  const computes = bound === "compute-bound";
  if (phase === "training") return say("training");
  if (!keeps && phase === "decode") return say("again");
  if (phase === "prefill") {
    if (computes) return say("prefill compute");
    return `${say("prefill")} ${say(until === null ? "never" : tokens < until ? "until" : "rows")}`;
  }
  if (longest === "rows") return say("rows");
  if (computes) return say("users compute");
  return say(users === 1 ? "alone" : "together");
}
