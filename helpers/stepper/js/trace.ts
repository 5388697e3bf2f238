// Reads the record. Everything here is looked up or counted in the trace; nothing is computed from a formula.
import VIEW from "../view.json" with { type: "json" };
import { fillText } from "./format.ts";
import type { Pass, Ranges, Trace } from "./schema";
import type { Run, TraceRecord } from "./types";

const FULL_WEIGHT = 65535;

/** [[0, 2], [5, 6]] -> [0, 1, 5] */
export function spread(ranges: Ranges) {
  return ranges.flatMap(([start, stop]) => Array.from({ length: stop - start }, (_, i) => start + i));
}

/** [0, 1, 5] -> [[0, 2], [5, 6]]; indices ascend. */
export function gather(indices: number[]) {
  const ranges: Ranges = [];
  for (const i of indices) {
    const last = ranges.at(-1);
    if (last && last[1] === i) last[1] = i + 1;
    else ranges.push([i, i + 1]);
  }
  return ranges;
}

export const holds = (ranges: Ranges, i: number) => ranges.some(([start, stop]) => start <= i && i < stop);

export const sizeOf = (ranges: Ranges) => ranges.reduce((sum, [start, stop]) => sum + stop - start, 0);

export function union(a: Ranges, b: Ranges) {
  return gather([...new Set([...spread(a), ...spread(b)])].sort((x, y) => x - y));
}

/** Names of the passes of a run: Training, Prefill, Decode 1, Decode 2, …; `short` for the rail. */
function namePasses(passes: Pass[]) {
  return passes.map(({ phase }, index) => {
    const number = passes.slice(0, index + 1).filter((one) => one.phase === phase).length;
    const name = phase.charAt(0).toUpperCase() + phase.slice(1) + (phase === "decode" ? ` ${number}` : "");
    return { index, phase, name, short: number > 1 ? String(number) : name };
  });
}

/** A pass as one layer does it: layers with a window, or with a state, see and keep other entries than the part says. */
function readPass({ parts: [first], counts: all, others = [] }: Pass, layer: number) {
  const other = others.find(({ layers }) => layers.includes(layer));
  const part = { ...first, ...other };
  const counts = other?.counts ?? all;
  const queries = spread(union(part.repeated, part.new));
  const visible = new Map(queries.map((query, k) => [query, part.visible[k]]));
  // A layer that scores nothing has no pairs to mask.
  const there = counts.products ? union(union(part.read, part.written), union(part.new, part.repeated)) : [];
  return { queries, visible, there, part, counts };
}

function readRun({ name, cache, passes }: Trace["runs"][number], layer: number): Run {
  const names = namePasses(passes);
  const ranAt: Run["ranAt"] = new Map();
  const chosenAt = new Map();
  const events = passes.map((raw, index) => {
    const event = { raw, ...names[index], ...readPass(raw, layer), counted: raw.phase !== "training" };
    if (event.counted) {
      for (const query of event.queries) ranAt.set(query, [...(ranAt.get(query) ?? []), index]);
      for (const out of event.part.out) chosenAt.set(out.chosen, index);
    }
    return { ...event, emitted: chosenAt.size };
  });
  return { name, keeps: cache !== "none", events, ranAt, chosenAt };
}

/** Contexts by layer, head and token: those of the pass that ran it first. */
function readContexts(runs: Run[]) {
  const found = new Map();
  for (const { part } of runs.flatMap((run) => run.events))
    for (const [key, rows] of Object.entries(part.contexts))
      spread(part.new).forEach((token, k) => {
        if (!found.has(`${key}.${token}`)) found.set(`${key}.${token}`, rows[k]);
      });
  return found;
}

function readRuns(data: Trace, layer: number) {
  const runs = data.runs.map((run) => readRun(run, layer));
  const withCache = runs.find((run) => run.keeps) ?? null;
  return { runs, withCache, withoutCache: runs.find((run) => !run.keeps) ?? null };
}

/** The record as one layer has it. */
export function recordIn(record: TraceRecord, layer: number): TraceRecord {
  const { data, inLayers } = record;
  const differs = data.runs.some(({ passes }) =>
    passes.some(({ others }) => others?.some(({ layers }) => layers.includes(layer))),
  );
  if (!differs) return record;
  const known = inLayers.get(layer) ?? { ...record, ...readRuns(data, layer) };
  inLayers.set(layer, known);
  return known;
}

/** The layers that can be shown: those with heads that were recorded, and those that keep no KV entries. */
function layersOf({ recorded, runs: [run] }: Trace) {
  const rowless = run.passes[0].shapes.filter(({ v }) => v === null).map(({ layer }) => layer);
  return [...new Set([...recorded.map(([layer]) => layer), ...rowless])].sort((a, b) => a - b);
}

/** The record, prepared: runs with and without a cache, pass by pass the same, histories, contexts, layers and heads. */
export function readTrace(data: Trace): TraceRecord {
  const read = readRuns(data, -1); // as the part of each pass says
  const { runs } = read;
  const [{ prompt, tokens }] = data.sequences;
  const newest = runs.flatMap((run) => run.events.map(({ queries }) => queries[queries.length - 1]));
  return {
    ...{ data, inLayers: new Map(), model: data.model, prompt, tokens, ...read },
    columns: Math.max(prompt, ...newest.map((query) => query + 1)),
    layers: layersOf(data),
    recorded: data.recorded,
    weightRows: data.weights.rows,
    values: data.values ?? [],
    contexts: readContexts(runs),
    decoded: new Map(),
    means: new Map(),
  };
}

export function headsOf(record: TraceRecord, layer: number) {
  return record.recorded.filter(([l]) => l === layer).map(([, head]) => head);
}

/** A head by its name, else by its number from 1; null is the mean of all. */
export function headName(record: TraceRecord, head: number | null) {
  if (head === null) return VIEW.labels.mean;
  return record.model.head_names?.[head] ?? fillText(VIEW.labels.head, { number: head + 1 });
}

export function decodeWeights(text: string) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true) / FULL_WEIGHT);
}

/** Attention weights of one query over the tokens it may look at, or null where they were not recorded. */
export function weightsOf(record: TraceRecord, token: number, layer: number, head: number) {
  const key = `0.${token}.${layer}.${head}`;
  if (!(key in record.weightRows)) return null;
  const weights = record.decoded.get(key) ?? decodeWeights(record.weightRows[key]);
  record.decoded.set(key, weights);
  return weights;
}

export function contextOf(record: TraceRecord, token: number, layer: number, head: number) {
  return record.contexts.get(`${layer}.${head}.${token}`) ?? null;
}

/** What stands in K or V of one token, or null. */
export function contentOf(record: TraceRecord, kind: "k" | "v", token: number, layer: number) {
  const kept = record.values.find((v) => v.layer === layer);
  return kept?.[kind]?.[token] ?? null;
}
