// A decoder of the Llama family on typed arrays: helpers/model/attention.py and transformer.py, in their order and
// with their names. One sequence: a Float32Array holds (T, …), row after row. Sums run in 64 bits.
import { KVCache } from "./cache.ts";
import { dot, type Matrix } from "./matrix.ts";
import { softmax } from "./sample.ts";
import type { Config } from "./protocol";

/** A weight by the name that it has in Hugging Face checkpoints; undefined where there is none. */
export type Weights = (name: string) => Matrix | Float32Array | undefined;
/** Who looks on: gets each row of attention weights, over the rows that this query may look at. */
export type Watch = (layer: number, head: number, query: number, weights: Float64Array) => void;
type Rotation = { cos: Float32Array; sin: Float32Array };

const { fround } = Math;

/** By how many radians each pair of numbers turns from one position to the next, (D / 2,), in 32 bits as in Python.
 * Source: RoPE, Su et al. 2021, arXiv:2104.09864. */
export function ropeFrequencies({ headDim, ropeTheta, ropeScaling }: Config) {
  return Float32Array.from({ length: headDim / 2 }, (_, i) => {
    const frequency = fround(1 / fround(ropeTheta ** fround((2 * i) / headDim)));
    return ropeScaling ? llama3Scaling(frequency, ropeScaling) : frequency;
  });
}

/** Slow down the slow pairs `factor` times, leave the fast ones, blend in between (Llama 3.1). */
function llama3Scaling(
  frequency: number,
  { factor, lowFreqFactor: low, highFreqFactor: high, originalMaxSeqLen }: NonNullable<Config["ropeScaling"]>,
) {
  const waves = (originalMaxSeqLen * frequency) / (2 * Math.PI); // full turns in the original context
  const kept = Math.min(1, Math.max(0, (waves - low) / (high - low)));
  return ((1 - kept) * frequency) / factor + kept * frequency;
}

/** The cosines and sines that rotate rows at these positions, (T, D / 2). */
function rotation(positions: number[], frequencies: Float32Array): Rotation {
  const angles = positions.flatMap((position) => Array.from(frequencies, (f) => fround(position * f)));
  return { cos: Float32Array.from(angles, Math.cos), sin: Float32Array.from(angles, Math.sin) };
}

/**
 * Turn each pair of numbers of x (T, H, D), in place, by its angle: (a, b) → (a cos - b sin, b cos + a sin).
 * Pairs are (i, i + D / 2), the layout of Hugging Face checkpoints; the paper's are (2i, 2i + 1).
 */
function rotate(x: Float32Array, { cos, sin }: Rotation, heads: number, D: number) {
  const pairs = D / 2;
  for (let row = 0; row * D < x.length; row++) {
    const angles = Math.floor(row / heads) * pairs; // all heads of a token turn alike
    for (let i = 0; i < pairs; i++) {
      const [a, b] = [x[row * D + i], x[row * D + i + pairs]];
      const [c, s] = [cos[angles + i], sin[angles + i]];
      x[row * D + i] = a * c - b * s;
      x[row * D + i + pairs] = b * c + a * s;
    }
  }
}

/** y = x Wᵀ + b: from (n, C) to (n, F). */
class Linear {
  declare weight: Matrix;
  declare bias: Float32Array | null;

  constructor(weight: Matrix, bias: Float32Array | null) {
    this.weight = weight;
    this.bias = bias;
  }

  forward(x: Float32Array, n: number) {
    const out = new Float32Array(n * this.weight.shape[0]);
    this.weight.times(x, n, out);
    if (this.bias) for (let i = 0; i < out.length; i++) out[i] += this.bias[i % this.bias.length];
    return out;
  }
}

/** Project to Q, K and V, norm, rotate, append to the cache, attend, project back. Of some models each head's query and
 * key are normed, and some layers of others do not rotate.
 * Source: QK norm, Dehghani et al. 2023, arXiv:2302.05442; RoPE beside NoPE, Yang et al. 2025, arXiv:2501.18795. */
class Attention {
  declare config: Config;
  declare layer: number;
  declare scale: number;
  declare qProj: Linear;
  declare kProj: Linear;
  declare vProj: Linear;
  declare oProj: Linear;
  declare qNorm: RMSNorm | null;
  declare kNorm: RMSNorm | null;
  declare rotates: boolean;

  constructor(config: Config, read: Reader, layer: number) {
    const { hiddenSize: C, headDim: D, nHeads: H, nKvHeads: Hkv, qkvBias: bias } = config;
    const name = `model.layers.${layer}.self_attn`;
    this.config = config;
    this.layer = layer;
    this.scale = D ** -0.5;
    this.qProj = read.linear(`${name}.q_proj`, H * D, C, bias);
    this.kProj = read.linear(`${name}.k_proj`, Hkv * D, C, bias);
    this.vProj = read.linear(`${name}.v_proj`, Hkv * D, C, bias);
    this.oProj = read.linear(`${name}.o_proj`, C, H * D);
    this.qNorm = config.qkNorm ? read.norm(`${name}.q_norm`, D) : null;
    this.kNorm = config.qkNorm ? read.norm(`${name}.k_norm`, D) : null;
    this.rotates = !config.nopeLayers.includes(layer);
  }

  /** Mix positions: (T, C) → (T, C). */
  forward(x: Float32Array, T: number, cosSin: Rotation, cache: KVCache, watch?: Watch) {
    const { nHeads, nKvHeads, headDim } = this.config;
    let [q, k, v] = [this.qProj, this.kProj, this.vProj].map((project) => project.forward(x, T));
    q = this.qNorm?.forward(q) ?? q;
    k = this.kNorm?.forward(k) ?? k;
    if (this.rotates) {
      rotate(q, cosSin, nHeads, headDim);
      rotate(k, cosSin, nKvHeads, headDim);
    }
    const rows = cache.append(this.layer, k, v); // (S, Hkv, D)
    const contexts = new Float32Array(q.length); // (T, H, D)
    for (let query = 0; query < T; query++)
      for (let head = 0; head < nHeads; head++) {
        const weights = this.attend(q, rows, query, head, cache.visible(query), contexts);
        watch?.(this.layer, head, query, weights);
      }
    return this.oProj.forward(contexts, T);
  }

  /**
   * Scores, softmax, average, of one query and one head: the core of attention. Write its context; return its weights.
   * Source: Vaswani et al. 2017, arXiv:1706.03762; grouped KV heads, Ainslie et al. 2023, arXiv:2305.13245.
   */
  attend(
    q: Float32Array,
    { k, v }: { k: Float32Array; v: Float32Array },
    query: number,
    head: number,
    visible: number,
    contexts: Float32Array,
  ) {
    const { nHeads: H, nKvHeads: Hkv, headDim: D } = this.config;
    const first = Math.floor(head / (H / Hkv)) * D; // each KV head serves H / Hkv query heads
    const at = (query * H + head) * D;
    const scores = new Float64Array(visible);
    for (let j = 0; j < visible; j++) scores[j] = this.scale * dot(q, at, k, j * Hkv * D + first, D);
    const weights = softmax(scores, scores); // in their place
    for (let j = 0; j < visible; j++)
      for (let d = 0; d < D; d++) contexts[at + d] += weights[j] * v[j * Hkv * D + first + d];
    return weights;
  }
}

/** Divide each token's numbers by the root of their mean square, then scale each by a learned weight.
 * Source: Zhang and Sennrich 2019, arXiv:1910.07467. */
class RMSNorm {
  declare weight: Float32Array;
  declare eps: number;

  constructor(weight: Float32Array, eps: number) {
    this.weight = weight;
    this.eps = eps;
  }

  /** (T, C) → (T, C), each token by itself; or (T, H, D) → (T, H, D), each head. */
  forward(x: Float32Array) {
    const C = this.weight.length;
    const out = new Float32Array(x.length);
    for (let at = 0; at < x.length; at += C) {
      const scale = 1 / Math.sqrt(dot(x, at, x, at, C) / C + this.eps);
      for (let c = 0; c < C; c++) out[at + c] = this.weight[c] * (x[at + c] * scale);
    }
    return out;
  }
}

/** The MLP: a gate, silu(gate) · up, and back down. Source: Shazeer 2020, arXiv:2002.05202. */
class SwiGLU {
  declare gateProj: Linear;
  declare upProj: Linear;
  declare downProj: Linear;

  constructor({ hiddenSize: C, intermediateSize: F }: Config, read: Reader, name: string) {
    this.gateProj = read.linear(`${name}.gate_proj`, F, C);
    this.upProj = read.linear(`${name}.up_proj`, F, C);
    this.downProj = read.linear(`${name}.down_proj`, C, F);
  }

  /** (T, C) → (T, C), each token by itself. */
  forward(x: Float32Array, T: number) {
    const gate = this.gateProj.forward(x, T);
    const up = this.upProj.forward(x, T);
    const gated = gate.map((g, i) => (g / (1 + Math.exp(-g))) * up[i]);
    return this.downProj.forward(gated, T);
  }
}

/** One layer: attention, which moves information between tokens, then the MLP, which does not. */
class Block {
  declare inputLayernorm: RMSNorm;
  declare selfAttn: Attention;
  declare postAttentionLayernorm: RMSNorm;
  declare mlp: SwiGLU;

  constructor(config: Config, read: Reader, layer: number) {
    const name = `model.layers.${layer}`;
    this.inputLayernorm = read.norm(`${name}.input_layernorm`, config.hiddenSize);
    this.selfAttn = new Attention(config, read, layer);
    this.postAttentionLayernorm = read.norm(`${name}.post_attention_layernorm`, config.hiddenSize);
    this.mlp = new SwiGLU(config, read, `${name}.mlp`);
  }

  /** Add to the residual stream twice. */
  forward(x: Float32Array, T: number, cosSin: Rotation, cache: KVCache, watch?: Watch) {
    x = add(x, this.selfAttn.forward(this.inputLayernorm.forward(x), T, cosSin, cache, watch));
    return add(x, this.mlp.forward(this.postAttentionLayernorm.forward(x), T));
  }
}

const add = (a: Float32Array, b: Float32Array) => a.map((x, i) => x + b[i]);

export class Decoder {
  declare config: Config;
  declare embedTokens: Matrix;
  declare layers: Block[];
  declare norm: RMSNorm;
  declare lmHead: Linear;
  declare frequencies: Float32Array;

  /** Weights that are missing or of another shape raise an error that names them, as `inFile` has it. */
  constructor(config: Config, weights: Weights, inFile: (name: string) => string = (name) => name) {
    const read = new Reader(config, weights, inFile);
    this.config = config;
    this.embedTokens = read.named("model.embed_tokens.weight", config.vocabSize, config.hiddenSize);
    this.layers = Array.from({ length: config.nLayers }, (_, layer) => new Block(config, read, layer));
    this.norm = read.norm("model.norm", config.hiddenSize);
    this.lmHead = config.tied
      ? new Linear(this.embedTokens, null)
      : read.linear("lm_head", config.vocabSize, config.hiddenSize);
    this.frequencies = ropeFrequencies(config);
  }

  /**
   * Run new tokens through every layer; earlier ones are read from the cache. It pauses behind each layer, so that
   * a Worker can see whether it is to stop; one that is left there has changed nothing.
   * The cache holds the earlier tokens and takes the new ones; without one these are all there is. Returns the logits,
   * (T, V), or (V,) of the last position only.
   */
  *layerByLayer(
    tokens: number[],
    cache: KVCache = new KVCache(this.config),
    { lastOnly = false, watch }: { lastOnly?: boolean; watch?: Watch } = {},
  ): Generator<number, Float32Array> {
    const [T, C] = [tokens.length, this.config.hiddenSize];
    if (tokens.some((token) => token >= this.config.vocabSize))
      throw new RangeError(
        `a token's id is over ${this.config.vocabSize - 1}: the file does not fit its own sizes`,
      );
    const cosSin = rotation(cache.positions(T), this.frequencies);
    let x = new Float32Array(T * C);
    tokens.forEach((token, i) => this.embedTokens.row(token, x, i * C));
    for (const [layer, block] of this.layers.entries()) {
      x = block.forward(x, T, cosSin, cache, watch);
      yield layer;
    }
    x = lastOnly ? x.subarray(-C) : x;
    const logits = this.lmHead.forward(this.norm.forward(x), x.length / C);
    cache.advance(T); // last, so that a pass that fails leaves the cache as it was
    return logits;
  }

  /** The same without a pause. */
  forward(...given: Parameters<Decoder["layerByLayer"]>) {
    const pass = this.layerByLayer(...given);
    for (;;) {
      const { done, value } = pass.next();
      if (done) return value;
    }
  }
}

/** Weights, held to the shapes that the config asks for. */
class Reader {
  declare config: Config;
  declare weights: Weights;
  declare inFile: (name: string) => string;

  constructor(config: Config, weights: Weights, inFile: (name: string) => string) {
    this.config = config;
    this.weights = weights;
    this.inFile = inFile;
  }

  named(name: string, ...shape: number[]): any {
    const found = this.weights(name);
    const got = found instanceof Float32Array ? [found.length] : found?.shape;
    if (String(got) !== String(shape))
      throw new RangeError(
        `the tensor ${this.inFile(name)} ${got ? `is of shape (${got.join(", ")}); expected` : "is missing; expected one of shape"} ` +
          `(${shape.join(", ")}): the file does not fit its own sizes`,
      );
    return found;
  }

  linear(name: string, F: number, C: number, bias = false) {
    return new Linear(this.named(`${name}.weight`, F, C), bias ? this.named(`${name}.bias`, F) : null);
  }

  norm(name: string, n: number) {
    return new RMSNorm(this.named(`${name}.weight`, n), this.config.normEps);
  }
}
