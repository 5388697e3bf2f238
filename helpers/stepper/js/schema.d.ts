// Made by npm run build out of helpers/trace/schema.json.

/**
 * FORMAT.md says what the fields mean. Readers ignore other keys.
 */
export type TheRecordOfADecoderSRunOrOfAnEngineSVersion3 = Trace | EngineTrace;
export type Size = number;
/**
 * @minItems 2
 * @maxItems 2
 */
export type Pair = [Count, Count];
export type Count = number;
/**
 * Half-open: [[0, 4]] holds 0 to 3.
 */
export type Ranges = Pair[];
export type Numbers = Count[];

export interface Trace {
  format: "watch-it-decode-trace";
  version: 3;
  model: Model;
  /**
   * (layer, head)
   */
  recorded: Pair[];
  /**
   * @minItems 1
   */
  sequences: [TokenSequence, ...TokenSequence[]];
  runs: Run[];
  weights: Weights;
  values: Values[] | null;
}
export interface Model {
  name: string;
  n_layers: Size;
  n_heads: Size;
  n_kv_heads: Size;
  /**
   * null: rules in place of keys
   */
  k_dim: number | null;
  v_dim: Size;
  scale: number | null;
  head_names: string[] | null;
  element_bytes: Size;
  /**
   * what each layer is, such as sliding attention; null: all are alike
   */
  layer_types?: string[] | null;
}
export interface TokenSequence {
  prompt: Size;
  /**
   * @minItems 1
   */
  tokens: [Token, ...Token[]];
}
export interface Token {
  text: string;
  id: number | null;
  position: Count;
  origin: "prompt" | "generated";
}
export interface Run {
  name: string;
  /**
   * its kind: none, growing, static, …
   */
  cache: string;
  passes: Pass[];
}
export interface Pass {
  phase: "training" | "prefill" | "decode";
  parts: Part[];
  /**
   * One a layer. q, k, v and scores: (batch, heads, rows, numbers); null: the run had none. More, such as state: what the layer keeps beside rows or without any.
   */
  shapes: {
    layer: Count;
    [k: string]: Count[] | null | Count;
  }[];
  /**
   * Of one head and one layer. positions: tokens processed.
   */
  counts: {
    [k: string]: Count;
  };
  /**
   * What layers do otherwise than the part and counts say.
   */
  others?: Kept[];
}
export interface Part {
  sequence: Count;
  new: Ranges;
  visible: Ranges[];
  read: Ranges;
  written: Ranges;
  kept: Pair;
  repeated: Ranges;
  target: Count[] | null;
  contexts: {
    /**
     * This interface was referenced by `undefined`'s JSON-Schema definition
     * via the `patternProperty` "^\d+\.\d+$".
     */
    [k: string]: number[][];
  };
  out: Output[];
}
export interface Output {
  query: Count;
  /**
   * (text, logit, probability)
   */
  top: [string, number, number][];
  chosen: Count;
  how: string;
}
export interface Kept {
  layers: Numbers;
  visible: Ranges[];
  read: Ranges;
  written: Ranges;
  kept: Pair;
  counts: {
    [k: string]: Count;
  };
}
export interface Weights {
  encoding: "u16-base64";
  /**
   * By sequence.token.layer.head; an even number of bytes.
   */
  rows: {
    /**
     * This interface was referenced by `undefined`'s JSON-Schema definition
     * via the `patternProperty` "^\d+\.\d+\.\d+\.\d+$".
     */
    [k: string]: string;
  };
}
export interface Values {
  sequence: Count;
  layer: Count;
  k: number[][] | null;
  v: number[][];
}
export interface EngineTrace {
  format: "watch-it-decode-engine";
  version: 3;
  name: string;
  slots: Size;
  /**
   * tokens of a step; null: no limit
   */
  budget: number | null;
  n_pages: Size;
  page_size: Size;
  requests: RequestTrace[];
  steps: Step[];
}
export interface RequestTrace {
  id: string;
  prompt: Size;
  /**
   * @minItems 1
   */
  tokens: [string, ...string[]];
}
export interface Step {
  running: Share[];
  waiting: Numbers;
  preempted: Numbers;
  left: Numbers;
  freed: Numbers;
  findable: Numbers;
}
export interface Share {
  request: Count;
  slot: Count;
  start: Count;
  stop: Count;
  table: Numbers;
  found: Count;
  emitted: boolean;
}
