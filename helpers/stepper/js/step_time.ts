// What there is to say and to draw of a step of a case; step_time.py says and draws the same.
import VIEW from "../view.json" with { type: "json" };
import { optionsOf, type Case } from "./case.ts";
import { boundOf, bytesOf, longestOf, ON_TOP, pairsOfTerms, stepTime, usersThatFit } from "./cost.ts";
import { fill, fillText, formatDigits, formatGib, formatUnit } from "./format.ts";
import type { StepSeconds, Term } from "./cost.ts";
import type { Parts } from "./types";

const SAY = VIEW.step_time;

/** One pass of each user: tokens that are processed, tokens before them in the cache, tokens that meet the LM head;
 * `drafts`: all but one of the tokens are drafts. */
export type Pass = { tokens: number; before: number; logits: number; drafts?: boolean };
/** A term's place in a bar, from 0 to 1. */
export type Piece = { term: Term; from: number; share: number };
export type Facts = ReturnType<typeof factsOf>;

/** The pass that a case speaks of by itself: a decode step, or a verification. */
export function passOf({ tokens, newTokens }: Case): Pass {
  return { tokens: newTokens, before: tokens ?? 1, logits: newTokens, drafts: newTokens > 1 };
}

/** Seconds, bound and room of a pass. */
export function factsOf(chosen: Case, pass: Pass) {
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
    memory: { weights, kv: users * user, has: cards * card.memory_nbytes },
  };
}

/** What stands out in a sentence. */
const strong = (text: string) => ({ token: text });

const cardName = ({ card, cards }: Case) =>
  cards > 1 ? fillText(SAY["several cards"], { cards, card: card.name }) : card.name;

/** How long it takes, how many tokens a second, what bounds it. */
export function answerOf({ chosen, pass, step, bound, longest, least }: Facts): Parts {
  const { model, users } = chosen;
  const on = { model: model.name, card: cardName(chosen) };
  const kind = pass.drafts ? "verification" : pass.tokens > 1 ? "pass" : "decode";
  const one = pass.tokens / step.total;
  const rate = kind === "pass" ? "processed" : users > 1 ? "all" : "one";
  return [
    ...fill(SAY.step[kind], { ...on, least, tokens: pass.tokens, time: strong(formatUnit(step.total, "s")) }),
    " ",
    ...fill(rate === "processed" ? SAY.processed : SAY.rates[rate], {
      drafts: pass.drafts ? SAY.rates.drafts : "",
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

/** The bars of a step, of memory and of compute: what runs at the same time begins at the same place. */
export function barsOf(step: StepSeconds): Record<"step" | "memory" | "compute", Piece[]> {
  const { total, overlap, counted } = step;
  let from = 0;
  const laid = (terms: Term[]) =>
    terms.map((term, i) => {
      const before = terms.slice(0, i).reduce((sum, one) => sum + step[one], from);
      return { term, from: before / total, share: step[term] / total };
    });
  const bars: { memory: Piece[]; compute: Piece[]; step: Piece[] } = { memory: [], compute: [], step: [] };
  for (const [memory, compute] of [...pairsOfTerms(overlap), [[...ON_TOP], []]]) {
    const longer = counted.includes(memory[0]) ? memory : compute;
    if (compute.length) bars.memory.push(...laid(memory));
    bars.compute.push(...laid(compute));
    bars.step.push(...laid(longer).filter(({ share }) => share > 0));
    from = longer.reduce((sum, one) => sum + step[one], from);
  }
  return bars;
}

/** What the memory holds, and whether so many users fit. */
export function roomOf({ chosen, memory, fit, kept }: Facts) {
  const { model, users } = chosen;
  const card = cardName(chosen);
  const kind =
    fit > 0 ? (fit < users ? "too many" : "fit") : memory.weights > memory.has ? "none" : "no room";
  const [weights, kv, has] = [memory.weights, memory.kv, memory.has].map(formatGib);
  return {
    holds: fillText(SAY.holds, { weights, kv, has }),
    fits: fillText(SAY[kind], { fit, users, tokens: kept, model: model.name, card }),
  };
}

/** What the numbers leave out, or take for granted. */
export function leftOut({ chosen: { model }, kept, step }: Facts) {
  const { experts, max_seq_len: longest, name, notes = [] } = model;
  return [
    kept > longest && fillText(SAY.long, { model: name, longest }),
    ...notes,
    experts && fillText(SAY.experts, { of: experts[0], chosen: experts[1] }),
    SAY.longer[step.overlap ? 1 : 0],
    SAY.left,
  ].filter((sentence) => sentence !== false && sentence !== null);
}

/** Operations, and bytes to read and write. */
export function workOf({ chosen: { card, ...chosen }, step }: Facts) {
  const { cards, bandwidthReached, computeReached } = optionsOf({ card, ...chosen });
  const bytes = (step.kv_cache + step.weights) * cards * bandwidthReached * card.bytes_per_second;
  const operations = (step.attention + step.products) * cards * computeReached * card.flops_per_second;
  return fillText(SAY.work, {
    operations: formatUnit(operations, "FLOP"),
    bytes: formatUnit(bytes, "B"),
  });
}
