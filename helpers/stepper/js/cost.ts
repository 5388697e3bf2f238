// The time of a step, as Python's cost.step_time has it: tests/js/cost.test.mjs holds the two equal. A model and a card
// are lines of machines.py.

/** Layers that keep the same of a sequence: how many, numbers in a KV entry or in a state, the tokens that a window sees
 * (null: all), KV heads that cards can divide an entry among (a latent: 1; a state: null), operations of a query-key
 * pair in all heads (of a state: of a token), the most entries that a query reads, if it does not read all. An indexer is
 * a line of its own. */
export type LayerType = {
  layers: number;
  entry_size: number;
  window: number | null;
  state: boolean;
  kv_heads: number | null;
  pair: number;
  chosen?: number;
};
/** A published model, or one that a config.json describes; `notes`: what was counted how. */
export type Model = {
  name: string;
  hidden_size: number;
  vocab_size: number;
  tied: boolean;
  n_parameters: number;
  n_active: number | null;
  experts: [number, number] | null;
  max_seq_len: number;
  n_layers: number;
  n_heads: number;
  kinds: LayerType[];
  notes?: string[];
};
export type Card = {
  name: string;
  memory_nbytes: number;
  flops_per_second: number;
  bytes_per_second: number;
};
export type StepSeconds = ReturnType<typeof stepTime>;

/** What step_time takes by name; `logits`: new tokens of each user that meet the LM head, null for all. */
export const OPTIONS = {
  users: 1,
  newTokens: 1,
  logits: 1 as number | null,
  weightBits: 16,
  kvBits: 16,
  overlap: false,
  bandwidthReached: 1,
  computeReached: 1,
  launch: 0,
  cards: 1,
  collective: 0,
};
type Options = Partial<typeof OPTIONS>;

const sum = (numbers: number[]) => numbers.reduce((total, x) => total + x, 0);

/** KV entries that a layer keeps of so many tokens. */
const entriesKept = ({ state, window }: LayerType, tokens: number) =>
  state ? 1 : Math.min(tokens, window ?? Infinity);

/** KV entries that a query attends to, of so many tokens. */
const entriesAttended = (kind: LayerType, tokens: number) =>
  Math.min(entriesKept(kind, tokens), kind.chosen ?? Infinity);

/** Copies of a KV entry that so many cards keep, all together. */
const copiesOf = ({ kv_heads }: LayerType, cards: number) => Math.max(1, cards / (kv_heads ?? Infinity));

/** Numbers in the KV entries of so many tokens, of all cards together; with `queries` those that so many new tokens read,
 * as if no two selected the same. */
const numbersOf = ({ kinds }: Model, tokens: number, cards: number, queries = Infinity) =>
  sum(
    kinds.map((kind) => {
      const entries = Math.min(entriesKept(kind, tokens), (kind.chosen ?? Infinity) * queries);
      return kind.layers * copiesOf(kind, cards) * kind.entry_size * entries;
    }),
  );

/** Numbers in the matrix of the embedding, or of the LM head. */
const tableOf = (model: Model) => model.vocab_size * model.hidden_size;

/** Numbers in the weights but for an embedding that is looked up. */
const numbersRead = (model: Model) => model.n_parameters - (model.tied ? 0 : tableOf(model));

export type Term = "kv_cache" | "weights" | "attention" | "products" | "launch" | "collectives";
/** What comes on top of memory and compute. */
export const ON_TOP = ["launch", "collectives"] as Term[];

/** Terms of memory and terms of compute that run at the same time. */
export const pairsOfTerms = (overlap: boolean): Term[][][] =>
  overlap
    ? [
        [
          ["kv_cache", "weights"],
          ["attention", "products"],
        ],
      ]
    : [
        [["kv_cache"], ["attention"]],
        [["weights"], ["products"]],
      ];

/** Seconds of a step, by term: max(kv_cache, attention) + max(weights, products), or with `overlap` max(kv_cache + weights,
 * attention + products); then launch overhead and collectives. `counted` are the terms that add to the total,
 * `memory` and `compute` what each of the two adds; `tokens` are in the cache of each user. */
export function stepTime(model: Model, card: Card, tokens: number, options: Options = {}) {
  const { users, newTokens, weightBits, kvBits, overlap, cards, launch, ...chosen } = {
    ...OPTIONS,
    ...options,
  };
  const bandwidth = cards * chosen.bandwidthReached * card.bytes_per_second;
  const flops = cards * chosen.computeReached * card.flops_per_second;
  const [table, used] = [tableOf(model), model.n_active ?? numbersRead(model)];
  const numbers = numbersOf(model, tokens, cards, newTokens) + numbersOf(model, newTokens, cards);
  const operations = sum(
    model.kinds.map((kind) => kind.layers * kind.pair * pairsOf(kind, tokens, newTokens)),
  );
  const seconds = {
    kv_cache: (users * numbers * kvBits) / 8 / bandwidth,
    weights: ((used + numbersOfOthers(model, users * newTokens)) * weightBits) / 8 / bandwidth,
    attention: (users * operations) / flops,
    products: (2 * users * (newTokens * (used - table) + (chosen.logits ?? newTokens) * table)) / flops,
    launch,
    collectives: cards > 1 ? 2 * model.n_layers * chosen.collective : 0,
  };
  const all = (terms: Term[]) => sum(terms.map((term) => seconds[term]));
  const longer = pairsOfTerms(overlap).map(([a, b]) => (all(a) > all(b) ? a : b));
  const counted = [...longer.flat(), ...ON_TOP];
  const part = (terms: Term[]) => all(terms.filter((term) => counted.includes(term)));
  const [memory, compute] = [part(["kv_cache", "weights"]), part(["attention", "products"])];
  return { ...seconds, overlap, counted, memory, compute, total: memory + compute + all(ON_TOP) };
}

/** Pairs of a new query and a key that it may see, of one head of a layer. */
export function pairsOf(kind: LayerType, before: number, tokens: number) {
  const most = entriesAttended(kind, before + tokens);
  const growing = Math.max(0, Math.min(tokens, most - before)); // queries that see one more than the one before
  return growing * before + (growing * (growing + 1)) / 2 + (tokens - growing) * most;
}

/** Numbers in the experts that a pass reads beyond one token's, if each token chose at random. */
function numbersOfOthers(model: Model, tokens: number) {
  if (!model.experts || model.n_active === null) return 0;
  const [of, chosen] = model.experts;
  const each = (numbersRead(model) - model.n_active) / (of - chosen);
  return each * (of * (1 - (1 - chosen / of) ** tokens) - chosen);
}

/** Which of the two adds more. */
export const boundOf = ({ memory, compute }: StepSeconds) =>
  memory > compute ? "memory-bound" : "compute-bound";

/** The term that takes longest, of those that count. */
export const longestOf = (step: StepSeconds) => step.counted.reduce((a, b) => (step[b] > step[a] ? b : a));

/** The shortest prompt whose prefill is compute-bound; null if none of 2¹⁹ tokens is. */
export function tokensUntilCompute(model: Model, card: Card, options: Options = {}) {
  const reached = (newTokens: number) =>
    boundOf(stepTime(model, card, 0, { ...options, newTokens, logits: 1 })) === "compute-bound";
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

/** Bytes of the weights, and of the KV entries of so many tokens of one user, on all cards together. */
export function bytesOf(
  model: Model,
  tokens: number,
  { weightBits = 16, kvBits = 16, cards = 1 }: Options = {},
) {
  const bytes = (numbers: number, bits: number) => Math.ceil((numbers * bits) / 8);
  return {
    weights: bytes(model.n_parameters, weightBits),
    user: bytes(numbersOf(model, tokens, cards), kvBits),
  };
}

/** How many users fit next to the weights, with the KV entries of so many tokens each. */
export function usersThatFit(model: Model, card: Card, tokens: number, options: Options = {}) {
  const { weights, user } = bytesOf(model, tokens, options);
  return Math.max(0, Math.floor(((options.cards ?? 1) * card.memory_nbytes - weights) / user));
}
