// From one row of logits to the next token, as helpers/sampling.py: softmax, greedy, temperature, top-k, top-p.
/** @typedef {Float32Array | Float64Array} Numbers */
/** @typedef {import("./protocol.js").Settings} Settings */

const ROUNDING = 1e-9; // as in Python: a sum of rounded numbers may come out a hair under p

/** @param {Numbers} numbers */
function largest(numbers) {
  let most = -Infinity;
  for (const x of numbers) if (x > most) most = x;
  return most;
}

/** Scores to weights that sum to 1; -Infinity: not to be picked. @param {Numbers} scores
 * @param {Float64Array} weights where they go */
export function softmax(scores, weights = new Float64Array(scores.length)) {
  const peak = largest(scores);
  let total = 0;
  for (let i = 0; i < weights.length; i++) total += weights[i] = Math.exp(scores[i] - peak);
  for (let i = 0; i < weights.length; i++) weights[i] /= total;
  return weights;
}

/** Indices from the largest logit down; of equal ones the first comes first. @param {Numbers} logits */
export function ranked(logits) {
  return Uint32Array.from(logits, (_, i) => i).sort((i, j) => logits[j] - logits[i] || i - j);
}

/** The first few of `ranked`, fifty times faster for five of 49,152. @param {Numbers} logits @param {number} n */
export function likeliest(logits, n) {
  /** @type {number[]} */
  const best = [];
  for (let i = 0; i < logits.length; i++) {
    if (best.length === n && !(logits[i] > logits[best[n - 1]])) continue;
    const before = best.findIndex((j) => logits[i] > logits[j]);
    best.splice(before < 0 ? best.length : before, 0, i);
    best.length = Math.min(best.length, n);
  }
  return best;
}

/** All but these set to -Infinity. @param {Numbers} logits @param {Uint32Array} best */
function keep(logits, best) {
  const kept = new Float64Array(logits.length).fill(-Infinity);
  for (const i of best) kept[i] = logits[i];
  return kept;
}

/** The fewest logits, from the largest down, whose probabilities reach p. @param {Numbers} logits @param {number} p */
function keepTopP(logits, p) {
  const weights = softmax(logits);
  let before = 0; // what those ahead of this one hold together
  const best = ranked(logits).filter((i) => {
    const isKept = before < p * (1 - ROUNDING);
    before += weights[i];
    return isKept;
  });
  return keep(logits, best);
}

/** The probability of each token: temperature first, then top-k, then top-p. Temperature 0: the model's own.
 * @param {Numbers} logits @param {Settings} settings */
export function nextProbabilities(logits, { temperature, topK, topP }) {
  const peak = largest(logits);
  /** @type {Numbers} */
  let scores = Float64Array.from(logits, (logit) => (logit - peak) / (temperature || 1));
  if (topK !== null) scores = keep(scores, ranked(scores).subarray(0, topK));
  if (topP !== null && topP < 1) scores = keepTopP(scores, topP);
  return softmax(scores);
}

/** Random numbers from 0 to 1 (without 1), the same ones for the same seed.
 * Source: mulberry32, Tommy Ettinger 2017, public domain. @param {number} seed */
export function mulberry32(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let x = Math.imul(state ^ (state >>> 15), state | 1);
    x ^= x + Math.imul(x ^ (x >>> 7), x | 61);
    return ((x ^ (x >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The index that a random number u falls on, where each is as wide as its probability.
 * @param {Numbers} probabilities @param {number} u */
export function draw(probabilities, u) {
  const sums = [0];
  for (const p of probabilities) sums.push(sums[sums.length - 1] + p);
  const total = sums[sums.length - 1];
  return sums.findIndex((sum, i) => i > 0 && u * total < sum) - 1;
}

/** A function from logits (V,) to an index; wrong settings raise an error. Temperature 0 is greedy.
 * @param {Settings} settings @param {number} vocabSize @returns {(logits: Numbers) => number} */
export function chooser(settings, vocabSize) {
  checkSettings(settings, vocabSize);
  const random = mulberry32(settings.seed);
  if (!settings.temperature) return (logits) => logits.indexOf(largest(logits));
  return (logits) => draw(nextProbabilities(logits, settings), random());
}

/** @param {Settings} settings @param {number} vocabSize */
function checkSettings({ temperature, topK, topP, seed }, vocabSize) {
  if (!(temperature >= 0 && temperature < Infinity))
    throw new RangeError(`temperature is ${temperature}; expected a number, 0 for the likeliest token`);
  if (topK !== null && !(Number.isInteger(topK) && topK >= 1 && topK <= vocabSize))
    throw new RangeError(`top-k is ${topK}; expected 1 to ${vocabSize}, the vocabulary, or none`);
  if (topP !== null && !(topP > 0 && topP <= 1))
    throw new RangeError(`top-p is ${topP}; expected a number over 0 and at most 1, or none`);
  if (!(Number.isInteger(seed) && seed >= 0))
    throw new RangeError(`the seed is ${seed}; expected a whole number, 0 or more`);
}

/** In words, as Python's Sampling says it: "greedy", or "sampled, temperature 0.8, top-k 5". @param {Settings} settings */
export function settingsInWords({ temperature, topK, topP }) {
  if (!temperature) return "greedy";
  const named = { temperature, "top-k": topK, "top-p": topP };
  return [
    "sampled",
    ...Object.entries(named).flatMap(([name, x]) => (x === null ? [] : `${name} ${x}`)),
  ].join(", ");
}
