// The KV cache of helpers/model/cache/base.py, for one sequence: it alone knows where new tokens stand and what they
// may see. Rows lie behind one another, (S, Hkv, D), in arrays that double when they are full.
import type { Config } from "./protocol";

export class KVCache {
  declare width: number;
  declare maxLen: number;
  declare length: number;
  declare k: Float32Array[];
  declare v: Float32Array[];

  constructor({ nLayers, nKvHeads, headDim, maxSeqLen }: Config) {
    this.width = nKvHeads * headDim;
    this.maxLen = maxSeqLen;
    this.length = 0;
    this.k = Array.from({ length: nLayers }, () => new Float32Array(0));
    this.v = Array.from({ length: nLayers }, () => new Float32Array(0));
  }

  /** Where T new tokens stand, from 0. */
  positions(T: number) {
    if (this.length + T > this.maxLen)
      throw new RangeError(
        `${T} new tokens after ${this.length} make ${this.length + T}; expected at most ${this.maxLen}, ` +
          "the longest text that the model reads: take a shorter one",
      );
    return Array.from({ length: T }, (_, i) => this.length + i);
  }

  /** How many entries new token i may look at: those before it and its own. */
  visible(i: number) {
    return this.length + i + 1;
  }

  /** Store new keys (rotated) and values of one layer, (T, Hkv, D); return those of every position so far. */
  append(layer: number, k: Float32Array, v: Float32Array) {
    this.k[layer] = put(this.k[layer], this.length * this.width, k);
    this.v[layer] = put(this.v[layer], this.length * this.width, v);
    return { k: this.k[layer], v: this.v[layer] };
  }

  /** Count T tokens as stored: once a pass, after the last layer, so that one that stops has changed nothing. */
  advance(T: number) {
    this.length += T;
  }

  /** A copy of the entries of the first `length` tokens. */
  prefix(length: number): KVCache {
    const [k, v] = [this.k, this.v].map((layers) => layers.map((rows) => rows.slice(0, length * this.width)));
    return Object.assign(Object.create(KVCache.prototype), this, { length, k, v });
  }

  /** Keep the first `length` tokens, to go on from there. */
  truncate(length: number) {
    this.length = length;
  }
}

/** Put rows into an array from `at` on, or into a copy of twice the size where they do not fit. */
function put(stored: Float32Array, at: number, rows: Float32Array) {
  if (at + rows.length > stored.length) {
    const larger = new Float32Array(2 * (at + rows.length));
    larger.set(stored.subarray(0, at));
    stored = larger;
  }
  stored.set(rows, at);
  return stored;
}
