// The time of a step, as Python's cost.step_time has it: tests/js/cost.test.mjs holds the two equal. `model` and
// `card` are lines of Python's tables, with all of their fields.

/** A model of Python's table; `windows` has the window of each layer, null where it sees everything.
 * @typedef {{ name: string, n_heads: number, n_kv_heads: number, head_dim: number, hidden_size: number,
 *   vocab_size: number, tied: boolean, n_parameters: number, n_active: number | null,
 *   experts: [number, number] | null, windows: (number | null)[] }} Model */
/** @typedef {{ name: string, memory_nbytes: number, flops_per_second: number, bytes_per_second: number }} Card */
/** @typedef {ReturnType<typeof stepTime>} StepTime */

const BYTES = 2; // of a number, weight or row

/** @param {number[]} numbers */
const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);

/** Seconds of a step, by term: max(rows, attention) + max(weights, products), or with `overlap`
 * max(rows + weights, attention + products). `memory` and `compute` are what each of the two adds.
 * @param {Model} model @param {Card} card @param {number} tokens in the cache of each user
 * @param {{ users?: number, newTokens?: number, logits?: number, weightBits?: number, rowBits?: number,
 *   overlap?: boolean }} options `logits`: new tokens of each user that meet the LM head */
export function stepTime(
  model,
  card,
  tokens,
  { users = 1, newTokens = 1, logits = 1, weightBits = 16, rowBits = 16, overlap = false } = {},
) {
  const table = model.vocab_size * model.hidden_size;
  const used = model.n_active ?? model.n_parameters - (model.tied ? 0 : table);
  /** @param {(window: number) => number} count */
  const allLayers = (count) => sum(model.windows.map((window) => count(window ?? Infinity)));
  const kept = allLayers((window) => Math.min(tokens, window) + Math.min(newTokens, window));
  const pairs = allLayers((window) => pairsOf(window, newTokens, tokens));
  const row = 2 * model.n_kv_heads * model.head_dim;
  const [bandwidth, compute] = [card.bytes_per_second, card.flops_per_second];
  const terms = {
    rows: (users * kept * row * rowBits) / 8 / bandwidth,
    weights: ((used + weightsOfOthers(model, users * newTokens)) * weightBits) / 8 / bandwidth,
    attention: (4 * users * pairs * model.n_heads * model.head_dim) / compute,
    products: (2 * users * (newTokens * (used - table) + logits * table)) / compute,
  };
  const { rows, weights, attention, products } = terms;
  const lanes = overlap
    ? [[rows + weights, attention + products]]
    : [
        [rows, attention],
        [weights, products],
      ];
  const parts = {
    memory: sum(lanes.map(([a, b]) => (a > b ? a : 0))),
    compute: sum(lanes.map(([a, b]) => (a > b ? 0 : b))),
  };
  return { ...terms, ...parts, total: parts.memory + parts.compute };
}

/** Pairs of a query and a key that it may see, of one head. @param {number} window @param {number} tokens
 * @param {number} before */
function pairsOf(window, tokens, before) {
  const most = Math.min(window, before + tokens);
  const growing = Math.max(0, Math.min(tokens, most - before));
  return growing * before + (growing * (growing + 1)) / 2 + (tokens - growing) * most;
}

/** Numbers in the experts that a pass reads beyond one token's, if each token chose at random.
 * @param {Model} model @param {number} tokens */
function weightsOfOthers(model, tokens) {
  if (!model.experts || model.n_active === null) return 0;
  const [of, chosen] = model.experts;
  const table = model.vocab_size * model.hidden_size;
  const each = (model.n_parameters - (model.tied ? 0 : table) - model.n_active) / (of - chosen);
  return each * (of * (1 - (1 - chosen / of) ** tokens) - chosen);
}

/** What takes longest: "arithmetic", or to read the "weights" or the "rows". @param {StepTime} step */
export function boundOf({ rows, weights, memory, compute }) {
  return memory <= compute ? "arithmetic" : weights >= rows ? "weights" : "rows";
}

/** The shortest prompt whose prefill is bound by arithmetic; null if none of 2¹⁹ tokens is.
 * @param {Model} model @param {Card} card @param {number} users */
export function tokensUntilArithmetic(model, card, users = 1) {
  /** @param {number} tokens */
  const reached = (tokens) =>
    boundOf(stepTime(model, card, 0, { users, newTokens: tokens })) === "arithmetic";
  let high = 1;
  while (!reached(high)) if ((high *= 2) > 1e6) return null;
  let low = Math.floor(high / 2);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (reached(middle)) high = middle;
    else low = middle;
  }
  return high;
}

/** How many users' rows of so many tokens fit beside the weights. @param {Model} model @param {Card} card
 * @param {number} tokens */
export function usersThatFit(model, card, tokens) {
  const rows = sum(model.windows.map((window) => Math.min(tokens, window ?? Infinity)));
  const user = rows * 2 * model.n_kv_heads * model.head_dim * BYTES;
  return Math.max(0, Math.floor((card.memory_nbytes - model.n_parameters * BYTES) / user));
}
