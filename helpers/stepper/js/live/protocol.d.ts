// What a live view and its Worker say to each other. The Worker answers in the order in which it was asked;
// what a request set going says `id` in each answer. Times are milliseconds of the Worker's own clock.
import type { Trace } from "../schema";

/** Sizes as in helpers/model/config.py. */
export interface Config {
  nLayers: number;
  nHeads: number;
  nKvHeads: number;
  headDim: number;
  hiddenSize: number;
  intermediateSize: number;
  vocabSize: number;
  maxSeqLen: number;
  ropeTheta: number;
  /** Llama 3.1's stretching of slow rotations. */
  ropeScaling: {
    factor: number;
    lowFreqFactor: number;
    highFreqFactor: number;
    originalMaxSeqLen: number;
  } | null;
  normEps: number;
  tied: boolean;
  qkvBias: boolean;
  /** Each head's query and key are normed before they rotate, as in Qwen3. */
  qkNorm: boolean;
  /** Layers that do not rotate, as in SmolLM3. */
  nopeLayers: number[];
  eosIds: number[];
}

/** As helpers/sampling.py: Sampling. Temperature 0 is greedy. */
export interface Settings {
  temperature: number;
  seed: number;
}

export type Ask =
  /** The shipped model's safetensors file, or a GGUF file. */
  | { do: "load"; id: number; file: ArrayBuffer | Blob; kind: "safetensors" | "gguf" }
  /** How a text is cut: for what is typed; `chat`: as a question to a model that was trained to answer. */
  | { do: "tokenize"; id: number; text: string; chat?: boolean }
  /**
   * Go on from a text (or from ids), with or without the cache, to eos or so many tokens. `noEos`: eos gets no chance.
   * `record`: (layer, head) pairs whose weights the trace holds; [] for none. `resume`: the cache holds what this text
   * and the last one that was written without `resume` begin with, but for the last token.
   */
  | {
      do: "write";
      id: number;
      tokens: number[];
      steps: number;
      cache: boolean;
      noEos: boolean;
      settings: Settings;
      record: [number, number][];
      resume?: boolean;
    }
  /**
   * A text whose KV entries were kept (`before`), and one of the same length with words exchanged (`now`): both run whole,
   * their entries compared by value; then both go on for `steps` tokens: with the kept entries, and with them run again.
   */
  | { do: "change"; id: number; before: number[]; now: number[]; steps: number; settings: Settings }
  | { do: "stop" };

export interface Said {
  token: number;
  /** What it adds to the text: nothing yet where it is a part of a letter. */
  text: string;
  probability: number;
  /** The likeliest: text, logit, probability at temperature 1. */
  top: [string, number, number][];
}

export type Answer =
  | {
      id: number;
      op: "loaded";
      name: string;
      config: Config;
      /** Texts by id; a published model's only when asked for by `tokenize`. */
      vocabulary: string[] | null;
      bytes: number;
      chatTemplate: string | null;
    }
  /** Of each token what it adds to the text. */
  | { id: number; op: "tokens"; tokens: number[]; texts: string[] }
  /** While a file is opened: how many of its bytes are read. */
  | { id: number; op: "progress"; done: number }
  /** After each pass: what it ran, how long it took, what came of it. */
  | {
      id: number;
      op: "pass";
      phase: "prefill" | "decode";
      tokensRun: number;
      cached: number;
      ms: number;
      said: Said;
    }
  | {
      id: number;
      op: "written";
      /** Those that were said, without the text before. */
      tokens: number[];
      why: "eos" | "steps" | "full" | "stopped";
      ms: number;
      trace: Trace | null;
    }
  /** Largest difference of an entry's numbers over the largest number of that layer's entries, (L, S): 0 is bit-equal. */
  | {
      id: number;
      op: "changed";
      k: number[][];
      v: number[][];
      /** What was said behind the text. */
      stale: { tokens: number[]; texts: string[] };
      fresh: { tokens: number[]; texts: string[] };
    }
  /** `say`: what was got, what was expected, what to do. What was loaded before stays. */
  | { id: number; op: "failed"; say: string };
