// What bounds a pass, as tests/work_cases.py has it: tests/js/cost.test.mjs holds the two equal. `model` and `card`
// are lines of Python's tables, with all of their fields.

/** A model of Python's table; `windows` has the window of each layer, null where it sees everything.
 * @typedef {{ name: string, n_heads: number, n_kv_heads: number, head_dim: number, hidden_size: number,
 *   vocab_size: number, tied: boolean, n_parameters: number, n_active: number | null,
 *   experts: [number, number] | null, windows: (number | null)[] }} Model */
/** @typedef {{ name: string, memory_nbytes: number, flops_per_second: number, bytes_per_second: number }} Card */
/** Of one pass: tokens that each user runs in it, tokens whose rows lie in the cache, users, tokens with logits.
 * @typedef {{ tokens: number, before?: number, users?: number, readouts?: number }} Pass */
/** Operations (products, readout, attention) and bytes (weights, rowsRead, rowsWritten) of a pass.
 * @typedef {ReturnType<typeof workOfPass>} Work */

const BYTES = 2; // of a number, weight or row

/** @param {number[]} numbers */
const sum = (numbers) => numbers.reduce((total, x) => total + x, 0);

/** @param {Model} model @param {Pass} pass */
export function workOfPass(model, { tokens, before = 0, users = 1, readouts = 1 }) {
  const table = model.vocab_size * model.hidden_size;
  const used = model.n_active ?? model.n_parameters - (model.tied ? 0 : table);
  const row = 2 * model.n_kv_heads * model.head_dim;
  /** @param {(window: number | null) => number} count */
  const allLayers = (count) => sum(model.windows.map(count));
  const pairs = allLayers((window) => pairsOf(window, tokens, before));
  const kept = allLayers((window) => Math.min(before, (window ?? Infinity) - 1));
  const made = allLayers((window) => Math.min(tokens, window ?? Infinity));
  return {
    products: 2 * users * tokens * (used - table),
    readout: 2 * users * readouts * table,
    attention: 4 * users * pairs * model.n_heads * model.head_dim,
    weights: (used + weightsOfOthers(model, users * tokens)) * BYTES,
    rowsRead: users * kept * row * BYTES,
    rowsWritten: users * made * row * BYTES,
  };
}

/** Pairs of a query and a key that it may see, of one head. @param {number | null} window @param {number} tokens
 * @param {number} before */
function pairsOf(window, tokens, before) {
  const most = window ?? before + tokens;
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

/** @param {Work} work */
export const operationsOf = (work) => work.products + work.readout + work.attention;

/** @param {Work} work */
export const bytesOf = (work) => work.weights + work.rowsRead + work.rowsWritten;

/** Seconds that the arithmetic and the memory take, and the longer of the two. @param {Work} work @param {Card} card */
export function secondsOf(work, card) {
  const arithmetic = operationsOf(work) / card.flops_per_second;
  const memory = bytesOf(work) / card.bytes_per_second;
  return { arithmetic, memory, least: Math.max(arithmetic, memory) };
}

/** What takes longest: "arithmetic", or to read the "weights" or the "rows". @param {Work} work @param {Card} card */
export function boundOf(work, card) {
  if (operationsOf(work) / bytesOf(work) >= card.flops_per_second / card.bytes_per_second)
    return "arithmetic";
  return work.weights >= work.rowsRead + work.rowsWritten ? "weights" : "rows";
}

/** The shortest prompt whose prefill is bound by arithmetic; null if none of 2¹⁹ tokens is.
 * @param {Model} model @param {Card} card @param {number} users */
export function tokensUntilArithmetic(model, card, users = 1) {
  /** @param {number} tokens */
  const reached = (tokens) => boundOf(workOfPass(model, { tokens, users }), card) === "arithmetic";
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
