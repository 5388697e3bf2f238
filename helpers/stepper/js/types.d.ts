// What the modules hand to each other. The record itself has its types in schema.d.ts.
import type { Model, Output, Part, Pass, Ranges, Token, Trace, Values } from "./schema";

/** A sentence in parts: plain text, and words that tokens say. */
export type Parts = (string | { token: string })[];
export type Filled = Record<string, unknown>;

/** A pass as read. */
export interface Event {
  raw: Pass;
  index: number;
  phase: string;
  name: string;
  short: string;
  /** tokens that run, in order, and what each may look at */
  queries: number[];
  visible: Map<number, Ranges>;
  /** tokens whose K and V are there */
  there: Ranges;
  part: Part;
  counts: Record<string, number>;
  counted: boolean;
  emitted: number;
}

export interface Run {
  name: string;
  keeps: boolean;
  events: Event[];
  /** the events that ran a token: each time it looks at the same */
  ranAt: Map<number, number[]>;
  /** the event that chose a token */
  chosenAt: Map<number, number>;
}

export interface TraceRecord {
  data: Trace;
  /** as layers have it that do otherwise than the others */
  inLayers: Map<number, TraceRecord>;
  model: Model;
  prompt: number;
  tokens: Token[];
  columns: number;
  runs: Run[];
  withCache: Run | null;
  withoutCache: Run | null;
  layers: number[];
  recorded: [number, number][];
  weightRows: Record<string, string>;
  values: Values[];
  contexts: Map<string, number[]>;
  decoded: Map<string, Float64Array>;
  means: Map<string, Float64Array | null>;
}

/** What is looked at: `event` is an index, `row` a token, head null the mean of all. */
export interface Look {
  event: number;
  cached: boolean;
  layer: number;
  head: number | null;
  row: number | null;
  /** as if no mask hid what stands to the right */
  ahead?: boolean;
}

export type Frame = ReturnType<typeof import("./frame.ts").frameOf>;
export type Column = Frame["columns"][number];
export type Line = Frame["weights"][number];
export type Out = Omit<Output, "top" | "chosen"> & { chosen: string; top: Candidate[] };
export interface Candidate {
  word: string;
  logit: number;
  p: number;
  chosen: boolean;
}
export type Layout = ReturnType<typeof import("./geometry.ts").layoutOf>;
export type Board = import("./board.tsx").Board;
/** What is pointed at; line counts the heads shown. */
export interface About {
  row: number | null;
  column: number | null;
  line: number | null;
}
export type Theme = Record<string, string>;
