// Writes a trace (helpers/trace/FORMAT.md) of one run while it goes on, as helpers/recording/recorder.py does. It
// looks on from outside: the decoder shows it each row of attention weights. What it counts is counted there.

/** @typedef {import("../schema.js").Trace} Trace */
/** @typedef {import("../schema.js").Pass} Pass */
/** @typedef {import("./protocol.js").Config} Config */

const FULL = 65535; // an attention weight w is stored as w · FULL, rounded, in 16 bits
const WEIGHT_SUM = 0.005; // how far a stored row of weights may be from its sum

export class Recorder {
  /**
   * @param {import("./answer.js").Opened} opened
   * @param {number[]} prompt
   * @param {[number, number][]} recorded (layer, head) pairs whose weights are kept
   * @param {boolean} keeps whether rows stay in a cache
   */
  constructor({ name, config, tokenizer }, prompt, recorded, keeps) {
    this.config = config;
    this.tokenizer = tokenizer;
    this.seen = 0; // tokens that have run
    /** @type {Pass[]} */
    this.passes = [];
    /** @type {Record<string, string>} */
    this.rows = {};
    const tokens = /** @type {any} */ (prompt.map((id, position) => this.token(id, position, "prompt")));
    /** @type {Trace} */
    this.trace = {
      format: "watch-it-decode-trace",
      version: 3,
      model: describe(name, config),
      recorded,
      sequences: [{ prompt: prompt.length, tokens }],
      runs: [{ name: keeps ? "cached" : "uncached", cache: keeps ? "growing" : "none", passes: this.passes }],
      weights: { encoding: "u16-base64", rows: this.rows },
      values: null,
    };
    /** @type {"prefill" | "decode"} */
    this.phase = "prefill";
    /** @type {import("./cache.js").KVCache | null} */
    this.cache = null;
    this.before = 0;
    /** @type {{ T: number, S: number, pairs: number, visible: [number, number][][] }[]} */
    this.layers = [];
    this.isRecorded = new Set(recorded.map(String));
  }

  /** @param {number} id @param {number} position @param {"prompt" | "generated"} origin */
  token(id, position, origin) {
    return { text: this.tokenizer.text(id), id, position, origin };
  }

  /** Announce a pass; the cache is asked how many rows it keeps, null where none stays.
   * @param {"prefill" | "decode"} phase @param {import("./cache.js").KVCache | null} cache */
  openPass(phase, cache) {
    this.phase = phase;
    this.cache = cache;
    this.before = cache?.length ?? 0;
    this.layers = Array.from({ length: this.config.nLayers }, () => ({ T: 0, S: 0, pairs: 0, visible: [] }));
  }

  /** Take one query's weights over the tokens that it may look at, the first ones.
   * @param {number} layer @param {number} head @param {number} query @param {Float64Array} weights */
  attended = (layer, head, query, weights) => {
    const seen = weights.length;
    if (head === 0) {
      const counted = this.layers[layer];
      counted.T += 1;
      counted.S = Math.max(counted.S, seen);
      counted.pairs += seen;
      counted.visible.push([[0, seen]]);
    }
    if (this.isRecorded.has(`${layer},${head}`))
      this.rows[`0.${this.before + query}.${layer}.${head}`] ??= inBase64(in16Bits(weights));
  };

  /** Finish the pass, and write down the token that came of it. @param {import("../schema.js").Output["top"]} top
   * @param {number} id @param {string} how */
  closePass(top, id, how) {
    const { T, S, pairs, visible } = this.layers[0];
    const [start, end, keeps] = [this.before, this.before + T, this.cache !== null];
    /** @type {Pass} */
    const pass = {
      phase: this.phase,
      parts: [
        {
          sequence: 0,
          new: range(Math.max(start, this.seen), end),
          repeated: range(start, Math.min(this.seen, end)),
          visible,
          read: range(0, start),
          written: keeps ? range(start, end) : [],
          kept: [start, this.cache?.length ?? 0],
          target: null,
          contexts: {},
          out: [{ query: end - 1, top, chosen: end, how }],
        },
      ],
      shapes: this.layers.map((layer, n) => this.shapes(n, layer)),
      counts: { positions: T, kv_rows: T, rows_read: S - T, pairs, products: T * S },
    };
    this.passes.push(pass);
    this.seen = end;
    this.trace.sequences[0].tokens.push(this.token(id, end, "generated"));
  }

  /** @param {number} layer @param {{ T: number, S: number }} counted */
  shapes(layer, { T, S }) {
    const { nHeads: H, nKvHeads: Hkv, headDim: D } = this.config;
    return { layer, q: [1, H, T, D], k: [1, Hkv, S, D], v: [1, Hkv, S, D], scores: [1, H, T, S] };
  }
}

/** @param {number} start @param {number} stop @returns {[number, number][]} */
const range = (start, stop) => (start < stop ? [[start, stop]] : []);

/** Round a row of weights. All of them rounded one way may spoil the sum: then their running sum is rounded.
 * @param {Float64Array} weights */
function in16Bits(weights) {
  const exact = Array.from(weights, (w) => w * FULL);
  const rounded = exact.map(Math.round);
  /** @param {number[]} numbers */
  const total = (numbers) => numbers.reduce((a, b) => a + b, 0);
  if (Math.abs(total(rounded) - total(exact)) <= (FULL * WEIGHT_SUM) / 2) return rounded;
  let sum = 0;
  return exact.map((x) => Math.round(sum + x) - Math.round((sum += x) - x));
}

/** Whole numbers of 16 bits, the low byte first. @param {number[]} numbers */
function inBase64(numbers) {
  return btoa(numbers.map((n) => String.fromCharCode(n & 255, n >> 8)).join(""));
}

/** @param {string} name @param {Config} config */
function describe(name, { nLayers, nHeads, nKvHeads, headDim }) {
  return {
    name,
    n_layers: nLayers,
    n_heads: nHeads,
    n_kv_heads: nKvHeads,
    k_dim: headDim,
    v_dim: headDim,
    scale: headDim ** -0.5,
    head_names: null,
    element_bytes: 4,
  };
}
