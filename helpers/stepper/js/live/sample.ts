// From one row of logits to the next token, as helpers/sampling.py: softmax, greedy, temperature.
import type { Settings } from "./protocol";

type Numbers = Float32Array | Float64Array;
function largest(numbers: Numbers) {
  let most = -Infinity;
  for (const x of numbers) if (x > most) most = x;
  return most;
}

/** Scores to weights that sum to 1; -Infinity: not to be picked. They go to `weights`. */
export function softmax(scores: Numbers, weights: Float64Array = new Float64Array(scores.length)) {
  const peak = largest(scores);
  let total = 0;
  for (let i = 0; i < weights.length; i++) total += weights[i] = Math.exp(scores[i] - peak);
  for (let i = 0; i < weights.length; i++) weights[i] /= total;
  return weights;
}

/** Indices of the n largest logits, from the largest down; of equal ones the first comes first. */
export function likeliest(logits: Numbers, n: number) {
  const best: number[] = [];
  for (let i = 0; i < logits.length; i++) {
    if (best.length === n && !(logits[i] > logits[best[n - 1]])) continue;
    const before = best.findIndex((j) => logits[i] > logits[j]);
    best.splice(before < 0 ? best.length : before, 0, i);
    best.length = Math.min(best.length, n);
  }
  return best;
}

/** The probability of each token at a temperature. */
export function nextProbabilities(logits: Numbers, temperature: number) {
  const peak = largest(logits);
  return softmax(Float64Array.from(logits, (logit) => (logit - peak) / temperature));
}

/** Random numbers from 0 to 1 (without 1), the same ones for the same seed.
 * Source: mulberry32, Tommy Ettinger 2017, public domain. */
export function mulberry32(seed: number) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The index that a random number u falls on, where each is as wide as its probability. */
export function draw(probabilities: Numbers, u: number) {
  const sums = [0];
  for (const p of probabilities) sums.push(sums[sums.length - 1] + p);
  const total = sums[sums.length - 1];
  return sums.findIndex((sum, i) => i > 0 && u * total < sum) - 1;
}

/** A function from logits (V,) to an index. Temperature 0 is greedy. */
export function chooser({ temperature, seed }: Settings): (logits: Numbers) => number {
  const random = mulberry32(seed);
  if (!temperature) return (logits) => logits.indexOf(largest(logits));
  return (logits) => draw(nextProbabilities(logits, temperature), random());
}

/** In words, as Python's Sampling says it. */
export const settingsInWords = ({ temperature }: Settings) =>
  temperature ? `sampled, temperature ${temperature}` : "greedy";
