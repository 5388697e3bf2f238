// Writes a trace (helpers/trace/FORMAT.md) of one run while it goes on, as helpers/recording/recorder.py does. It
// looks on from outside: the decoder shows it each row of attention weights. What it counts is counted there.
import type { Trace, Pass, Output } from "../schema";
import type { Config } from "./protocol";
import type { KVCache } from "./cache.ts";
import type { Opened } from "./opened";

const FULL = 65535; // an attention weight w is stored as w · FULL, rounded, in 16 bits
const WEIGHT_SUM = 0.005; // how far a stored row of weights may be from its sum

export class Recorder {
  declare config: Config;
  declare tokenizer: Opened["tokenizer"];
  declare seen: number;
  declare passes: Pass[];
  declare rows: Record<string, string>;
  declare trace: Trace;
  declare phase: "prefill" | "decode";
  declare cache: KVCache | null;
  declare before: number;
  declare layers: { T: number; S: number; pairs: number; visible: [number, number][][] }[];
  declare isRecorded: Set<string>;

  /** `recorded`: (layer, head) pairs whose weights are kept; `keeps`: whether KV entries stay in a cache. */
  constructor(
    { name, config, tokenizer }: Opened,
    prompt: number[],
    recorded: [number, number][],
    keeps: boolean,
  ) {
    this.config = config;
    this.tokenizer = tokenizer;
    this.seen = 0; // tokens that have run
    this.passes = [];
    this.rows = {};
    const tokens = prompt.map((id, position) => this.token(id, position, "prompt")) as any;
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
    this.phase = "prefill";
    this.cache = null;
    this.before = 0;
    this.layers = [];
    this.isRecorded = new Set(recorded.map(String));
  }

  token(id: number, position: number, origin: "prompt" | "generated") {
    return { text: this.tokenizer.text(id), id, position, origin };
  }

  /** Announce a pass; the cache is asked how many entries it keeps, null where none stays. */
  openPass(phase: "prefill" | "decode", cache: KVCache | null) {
    this.phase = phase;
    this.cache = cache;
    this.before = cache?.length ?? 0;
    this.layers = Array.from({ length: this.config.nLayers }, () => ({ T: 0, S: 0, pairs: 0, visible: [] }));
  }

  /** Take one query's weights over the tokens that it may look at, the first ones. */
  attended = (layer: number, head: number, query: number, weights: Float64Array) => {
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

  /** Finish the pass, and write down the token that came of it. */
  closePass(top: Output["top"], id: number, how: string) {
    const { T, S, pairs, visible } = this.layers[0];
    const [start, end, keeps] = [this.before, this.before + T, this.cache !== null];
    const pass: Pass = {
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

  shapes(layer: number, { T, S }: { T: number; S: number }) {
    const { nHeads: H, nKvHeads: Hkv, headDim: D } = this.config;
    return { layer, q: [1, H, T, D], k: [1, Hkv, S, D], v: [1, Hkv, S, D], scores: [1, H, T, S] };
  }
}

const range = (start: number, stop: number): [number, number][] => (start < stop ? [[start, stop]] : []);

/** Round a row of weights. All of them rounded one way may spoil the sum: then their running sum is rounded. */
function in16Bits(weights: Float64Array) {
  const exact = Array.from(weights, (w) => w * FULL);
  const rounded = exact.map(Math.round);
  const total = (numbers: number[]) => numbers.reduce((a, b) => a + b, 0);
  if (Math.abs(total(rounded) - total(exact)) <= (FULL * WEIGHT_SUM) / 2) return rounded;
  let sum = 0;
  return exact.map((x) => Math.round(sum + x) - Math.round((sum += x) - x));
}

/** Whole numbers of 16 bits, the low byte first. */
function inBase64(numbers: number[]) {
  return btoa(numbers.map((n) => String.fromCharCode(n & 255, n >> 8)).join(""));
}

function describe(name: string, { nLayers, nHeads, nKvHeads, headDim }: Config) {
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
