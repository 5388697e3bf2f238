// The four-head toy as helpers/toy.py runs it, so that the reader can change its prompt in the page. `toy` holds the
// constants that Python wrote: queries, a sink score a head (null: it has none), LM head, vocabulary.

/** The constants, and V and K of a layer, by token. */
export type Toy = { queries: number[][]; sink: (number | null)[]; lm_head: number[][]; vocabulary: string[] };
export type Entries = { k: number[][]; v: number[] };

/** The sum of products, as far as `a` goes. */
function dotProduct(a: number[], b: number[]) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** Scores to weights that sum to 1 together with that of the sink, which is dropped. */
function toySoftmax(scores: number[], sink = -Infinity) {
  const peak = Math.max(sink, ...scores);
  const exps = scores.map((score) => Math.exp(score - peak));
  const total = exps.reduce((sum, x) => sum + x, Math.exp(sink - peak));
  return exps.map((x) => x / total);
}

/** Dot products of queries and the keys they may see, softmax, average: contexts, a row a token, a number a head. */
export function toyContexts(toy: Toy, keys: number[][], values: number[]) {
  return keys.map((_, token) => {
    const seen = keys.slice(0, token + 1);
    return toy.queries.map((query, head) => {
      const scores = seen.map((key) => dotProduct(query, key));
      return dotProduct(toySoftmax(scores, toy.sink[head] ?? -Infinity), values);
    });
  });
}

/** Run tokens that carry `numbers` through the layers: {k, v} of each layer, and the contexts of the last. */
export function runToy(toy: Toy, numbers: number[], layers: number) {
  const k = numbers.map((_, i) => [i % 2, i + 1]); // [is the position even, position], and positions count from 1
  const entries: Entries[] = [];
  let [v, contexts] = [numbers, [[0]]];
  for (let layer = 0; layer < layers; layer++) {
    entries.push({ k, v });
    contexts = toyContexts(toy, k, v);
    v = contexts.map((row) => row.reduce((sum, x) => sum + x) / row.length);
  }
  return { entries, contexts };
}

/** What the model says after the last token: the choice is that of the largest logit, of equal ones the first. */
export function toySays(toy: Toy, contexts: number[][]) {
  const logits = toy.lm_head.map((row) => dotProduct(row, contexts[contexts.length - 1]));
  const choice = logits.indexOf(Math.max(...logits));
  return { logits, probabilities: toySoftmax(logits), choice, word: toy.vocabulary[choice] };
}
