// What the lab counts: the recorded passes as if the prompt had another length, what has added up so far, and the shapes
// of a chosen model's tensors. tests/lab_cases.py does the same; nothing here asks the page.
import VIEW from "../view.json" with { type: "json" };
import { optionsOf } from "./case.ts";
import { pairsOf, tokensUntilCompute, type LayerType, type Model } from "./cost.ts";
import { fillText } from "./format.ts";
import { sizeOf } from "./trace.ts";
import type { Facts } from "./step_time.ts";
import type { Event, Run } from "./types";

/** A pass of one user: `tokens` are processed behind `before` that are not; of them `fresh` for the first time; `logits`
 * meet the LM head. */
type Pass = { tokens: number; before: number; fresh: number; logits: number };
type Counts = {
  tokens: number;
  pairs: number;
  written: number;
  read: number;
  againTokens: number;
  againPairs: number;
};

/** A recorded pass as if the prompt had `length` tokens instead of `prompt`; null leaves it as it was recorded. */
export function passAt(
  { queries, part, phase }: Pick<Event, "queries" | "part" | "phase">,
  prompt: number,
  length: number | null,
): Pass {
  const recorded = (queries.at(-1) ?? -1) + 1; // tokens up to the newest one
  const seen = recorded + (length ?? prompt) - prompt;
  /** Of tokens up to the newest: as many, unless the prompt is among them. */
  const scaled = (tokens: number) => (tokens === recorded ? seen : tokens);
  const tokens = scaled(queries.length);
  const fresh = scaled(sizeOf(part.new));
  return { tokens, before: seen - tokens, fresh, logits: phase === "training" ? tokens : 1 };
}

/** Of a model's kinds of layers the one whose queries see most: full attention, or else the widest window. */
export function widestOf({ kinds }: Pick<Model, "kinds">): LayerType {
  const reach = ({ state, window, chosen }: LayerType) => (state ? 0 : (window ?? chosen ?? Infinity));
  return kinds.reduce((a, b) => (reach(b) > reach(a) ? b : a));
}

/** KV entries of earlier tokens that a pass's queries see. */
const entriesSeen = ({ window, chosen }: LayerType, before: number) =>
  Math.min(before, (window ?? Infinity) - 1, chosen ?? Infinity);

/** What a pass counts in one layer, of one head and one user. `again` is what a cache spares, or what is processed again
 * without one: all that is not fresh. */
export function countsOf({ tokens, before, fresh }: Pass, kind: LayerType, keeps: boolean): Counts {
  const seen = tokens + before;
  return {
    tokens,
    pairs: pairsOf(kind, before, tokens),
    written: keeps ? tokens : 0,
    read: keeps ? entriesSeen(kind, before) : 0,
    againTokens: seen - fresh,
    againPairs: pairsOf(kind, 0, seen - fresh),
  };
}

/** What this pass counts, and all passes so far; the training reference is in no sum. */
export function accumulated(
  { events, keeps }: Run,
  event: Event,
  prompt: number,
  length: number | null,
  kind: LayerType,
) {
  const counts = (one: Event) => countsOf(passAt(one, prompt, length), kind, keeps && one.counted);
  const now = counts(event);
  const names = Object.keys(now) as (keyof Counts)[];
  const passed = events.filter((one) => one.counted && one.index <= event.index).map(counts);
  const soFar = names.map((name) => [name, passed.reduce((sum, one) => sum + one[name], 0)]);
  return { now, soFar: Object.fromEntries(soFar) as Counts };
}

/** KV heads and the numbers of a key and of a value in one: those of an operation for each, and K and V equally
 * wide, but for a latent, one list for all heads, whose value is a part of its key. */
export function headOf({ entry_size: size, pair }: LayerType, nHeads: number) {
  const both = pair / (2 * nHeads);
  const latent = size < both;
  return latent
    ? { latent, kvHeads: 1, k: size, v: both - size }
    : { latent, kvHeads: size / both, k: both / 2, v: both / 2 };
}

/** Shapes of each operation of a pass, in order: name of the operation and lengths; and the sizes of the formula. */
export function shapesAt({ tokens: T, before, logits }: Pass, model: Model) {
  const kind = widestOf(model);
  const { latent, kvHeads, k, v } = headOf(kind, model.n_heads);
  const [S, H, C] = [T + entriesSeen(kind, before), model.n_heads, model.hidden_size];
  const operations: [string, number[]][] = [
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

/** What there is to learn from a pass behind a prompt of so many tokens, in a sentence or two. */
export function insightOf(
  { phase, keeps, prompt }: { phase: string; keeps: boolean; prompt: number },
  { chosen, pass: { tokens }, step, bound, longest }: Facts,
) {
  const { users, model, card } = chosen;
  const [memory, compute] = [step.kv_cache + step.weights, step.attention + step.products];
  const times = (a: number, b: number) =>
    a / b >= 9.95 ? Math.round(a / b).toLocaleString("en") : (a / b).toFixed(1);
  const computes = bound === "compute-bound";
  const until = phase === "prefill" ? tokensUntilCompute(model, card, optionsOf(chosen)) : null;
  let kind: keyof typeof VIEW.lab.insights = computes
    ? "users compute"
    : longest === "kv_cache"
      ? longest
      : users > 1
        ? "together"
        : "alone";
  if (phase === "training") kind = "training";
  else if (phase === "prefill") kind = computes ? "prefill compute" : until ? "prefill" : "prefill never";
  else if (!keeps) kind = "again";
  return fillText((phase === "prefill" ? VIEW.lab.insights.shared : "") + VIEW.lab.insights[kind], {
    ...{ tokens, users, until, prompt, all: tokens * users },
    ...{ longer: times(compute, memory), fewer: times(memory, compute) },
  });
}
