// What there is to say and to draw of a step of a case; step_time.py says and draws the same.
import VIEW from "../view.json" with { type: "json" };
import { optionsOf } from "./case.js";
import { boundOf, bytesOf, longestOf, ON_TOP, pairsOfTerms, stepTime, usersThatFit } from "./cost.js";
import { fill, fillText, formatDigits, formatGib, formatUnit } from "./format.js";
/** @import { Case } from "./case.js" */
/** @import { StepSeconds, Term } from "./cost.js" */
/** @import { Parts } from "./types" */

const SAY = VIEW.step_time;

/** One pass of each user: tokens that are processed, tokens before them in the cache, tokens that meet the LM head;
 * `drafts`: all but one of the tokens are drafts.
 * @typedef {{ tokens: number, before: number, logits: number, drafts?: boolean }} Pass */
/** A term's place in a bar, from 0 to 1. @typedef {{ term: Term, from: number, share: number }} Piece */
/** @typedef {ReturnType<typeof factsOf>} Facts */

/** The pass that a case speaks of by itself: a decode step, or a verification. @param {Case} chosen @returns {Pass} */
export function passOf({ tokens, newTokens }) {
  return { tokens: newTokens, before: tokens ?? 1, logits: newTokens, drafts: newTokens > 1 };
}

/** Seconds, bound and room of a pass. @param {Case} chosen @param {Pass} pass */
export function factsOf(chosen, pass) {
  const { model, card, users, cards, bandwidthReached, computeReached } = chosen;
  const options = { ...optionsOf(chosen), newTokens: pass.tokens, logits: pass.logits };
  const step = stepTime(model, card, pass.before, options);
  const kept = pass.before + pass.tokens;
  const { weights, user } = bytesOf(model, kept, options);
  return {
    ...{ chosen, pass, step, kept },
    bound: boundOf(step),
    longest: longestOf(step),
    least: SAY.least[bandwidthReached === 100 && computeReached === 100 ? 0 : 1],
    fit: usersThatFit(model, card, kept, options),
    memory: { weights, rows: users * user, has: cards * card.memory_nbytes },
  };
}

/** @param {string} text what stands out in a sentence */
const strong = (text) => ({ token: text });

/** How long it takes, how many tokens a second, what bounds it. @param {Facts} facts @returns {Parts} */
export function answerOf({ chosen, pass, step, bound, longest, least }) {
  const { users } = chosen;
  const kind = pass.drafts ? "verification" : pass.tokens > 1 ? "pass" : "decode";
  const one = pass.tokens / step.total;
  const rate = kind === "pass" ? "processed" : users > 1 ? "all" : "one";
  const rates = SAY.rates[pass.drafts ? "accepted" : "plain"];
  return [
    ...fill(SAY.step[kind], { least, tokens: pass.tokens, time: strong(formatUnit(step.total, "s")) }),
    " ",
    ...fill(rate === "processed" ? SAY.processed : rates[rate], {
      users,
      one: strong(formatDigits(one)),
      all: strong(formatDigits(users * one)),
    }),
    " ",
    ...fill(SAY.bound, {
      bound: strong(bound),
      term: SAY.terms[longest],
      time: formatUnit(step[longest], "s"),
    }),
  ];
}

/** The bars of a step, of memory and of compute: what runs at the same time begins at the same place.
 * @param {StepSeconds} step @returns {Record<"step" | "memory" | "compute", Piece[]>} */
export function barsOf(step) {
  const { total, overlap, counted } = step;
  let from = 0;
  /** @param {Term[]} terms */
  const laid = (terms) =>
    terms.map((term, i) => {
      const before = terms.slice(0, i).reduce((sum, one) => sum + step[one], from);
      return { term, from: before / total, share: step[term] / total };
    });
  /** @type {{ memory: Piece[], compute: Piece[], step: Piece[] }} */
  const bars = { memory: [], compute: [], step: [] };
  for (const [memory, compute] of [...pairsOfTerms(overlap), [[...ON_TOP], []]]) {
    const longer = counted.includes(memory[0]) ? memory : compute;
    if (compute.length) bars.memory.push(...laid(memory));
    bars.compute.push(...laid(compute));
    bars.step.push(...laid(longer).filter(({ share }) => share > 0));
    from = longer.reduce((sum, one) => sum + step[one], from);
  }
  return bars;
}

/** What the memory holds, and whether so many users fit. @param {Facts} facts */
export function roomOf({ chosen, memory, fit, kept }) {
  const { model, users, cards } = chosen;
  const card =
    cards > 1 ? fillText(SAY["several cards"], { cards, card: chosen.card.name }) : chosen.card.name;
  const kind =
    fit > 0 ? (fit < users ? "too many" : "fit") : memory.weights > memory.has ? "none" : "no room";
  const [weights, rows, has] = [memory.weights, memory.rows, memory.has].map(formatGib);
  return {
    holds: fillText(SAY.holds, { weights, rows, has }),
    fits: fillText(SAY[kind], { fit, users, tokens: kept, model: model.name, card }),
  };
}

/** What the numbers leave out, or take for granted. @param {Facts} facts */
export function leftOut({ chosen: { model }, kept, step }) {
  const { experts, max_seq_len: longest, name, notes = [] } = model;
  return [
    kept > longest && fillText(SAY.long, { model: name, longest }),
    ...notes,
    experts && fillText(SAY.experts, { of: experts[0], chosen: experts[1] }),
    SAY.longer[step.overlap ? 1 : 0],
    SAY.left,
  ].filter((sentence) => sentence !== false && sentence !== null);
}

/** Operations, and bytes to read and write. @param {Facts} facts */
export function workOf({ chosen: { card, ...chosen }, step }) {
  const { cards, bandwidthReached, computeReached } = optionsOf({ card, ...chosen });
  const bytes = (step.rows + step.weights) * cards * bandwidthReached * card.bytes_per_second;
  const operations = (step.attention + step.products) * cards * computeReached * card.flops_per_second;
  return fillText(SAY.work, {
    operations: formatUnit(operations, "FLOP"),
    bytes: formatUnit(bytes, "B"),
  });
}
