// Reads the record. Everything here is looked up or counted in the trace; nothing is computed from a formula.
import VIEW from "../view.json" with { type: "json" };
import { fillText } from "./format.js";

const FORMAT = "watch-it-decode-trace";
const VERSION = 2;
const FULL_WEIGHT = 65535;

/** A record that cannot be played; its message is for the reader. */
export class TraceError extends Error {
  name = "TraceError";
}

/** Raise where a record is of another format or version: its fields may mean something else. */
function checkVersion({ format, version }) {
  if (format === FORMAT && version === VERSION) return;
  const expected = `${FORMAT}, version ${VERSION}`;
  const got = `${format}, version ${JSON.stringify(version)}`;
  throw new TraceError(fillText(VIEW.labels.refused, { got, expected }));
}

/** [[0, 2], [5, 6]] -> [0, 1, 5] */
export function spread(ranges) {
  const indices = [];
  for (const [start, stop] of ranges) for (let i = start; i < stop; i++) indices.push(i);
  return indices;
}

/** [0, 1, 5] -> [[0, 2], [5, 6]]; indices ascend. */
export function gather(indices) {
  const ranges = [];
  for (const i of indices) {
    const last = ranges[ranges.length - 1];
    if (last && last[1] === i) last[1] = i + 1;
    else ranges.push([i, i + 1]);
  }
  return ranges;
}

export function holds(ranges, i) {
  return ranges.some(([start, stop]) => start <= i && i < stop);
}

export function sizeOf(ranges) {
  return ranges.reduce((sum, [start, stop]) => sum + stop - start, 0);
}

export function union(a, b) {
  return gather([...new Set([...spread(a), ...spread(b)])].sort((x, y) => x - y));
}

export function without(a, b) {
  return gather(spread(a).filter((i) => !holds(b, i)));
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Names of the events of a run: Training, Prefill, Decode 1, Decode 2, …; `short` for the rail. */
function nameEvents(events) {
  const kinds = events.map((event) => (event.op === "pass" ? event.phase : event.op));
  const total = {};
  for (const kind of kinds) total[kind] = (total[kind] ?? 0) + 1;
  const seen = {};
  return kinds.map((kind) => {
    seen[kind] = (seen[kind] ?? 0) + 1;
    const label = capital(kind);
    const numbered = kind === "decode" || total[kind] > 1;
    return {
      name: numbered ? `${label} ${seen[kind]}` : label,
      short: numbered && seen[kind] > 1 ? String(seen[kind]) : numbered ? `${label} 1` : label,
    };
  });
}

const NO_PART = { queries: [], visible: new Map(), there: [], part: null, counts: null };

function readPass(event, sequence) {
  const part = event.parts?.find((p) => p.sequence === sequence);
  if (!part) return NO_PART;
  const queries = spread(union(part.repeated, part.new));
  const visible = new Map(queries.map((query, k) => [query, part.visible[k]]));
  const there = union(union(part.read, part.written), union(part.new, part.repeated));
  return { queries, visible, there, part, counts: countsOf(event, part) };
}

/** Counts of one sequence: those of the pass where it runs alone, else as its part of the pass has them. */
function countsOf(event, part) {
  if (event.parts.length === 1) return event.counts;
  const positions = part.visible.length;
  const pairs = part.visible.reduce((sum, ranges) => sum + sizeOf(ranges), 0);
  return { positions, pairs, kv_rows: positions, rows_read: sizeOf(part.read) };
}

/** How often, and when, each query was scored: query -> [{ranges, events}], one entry for each visibility. */
function noteHistory(history, pass) {
  for (const query of pass.queries) {
    const ranges = pass.visible.get(query);
    const key = JSON.stringify(ranges);
    if (!history.has(query)) history.set(query, []);
    const entries = history.get(query);
    const entry = entries.find((e) => e.key === key);
    if (entry) entry.events.push(pass.index);
    else entries.push({ key, ranges, events: [pass.index] });
  }
}

function storedAfter(stored, event) {
  return event.part ? union(stored, event.part.written) : without(stored, event.gone);
}

/** Each pass under what it is called by in every run: its phase and its number among those of its phase. */
function passesByCall(events) {
  const found = new Map();
  const seen = {};
  for (const event of events) {
    if (event.op !== "pass") continue;
    seen[event.phase] = (seen[event.phase] ?? 0) + 1;
    event.call = `${event.phase} ${seen[event.phase]}`;
    found.set(event.call, event);
  }
  return found;
}

/** The same pass in another run; null where that run has none, and for an event that is no pass. */
export function samePass(run, event) {
  return run?.byCall.get(event.call) ?? null;
}

/** The last pass of a run at an event or before it, or null. */
export function passUpTo(run, event) {
  return run.events.slice(0, event.index + 1).findLast((e) => e.op === "pass") ?? null;
}

/** Where a reader of one run stands in another: at the same pass, else at the last before it that both have. */
export function counterpart(from, to, event) {
  if (from === to) return event;
  const earlier = from.events.slice(0, event.index + 1).reverse();
  return earlier.map((e) => samePass(to, e)).find((e) => e) ?? to.events[0];
}

function readRun(run, sequence) {
  const names = nameEvents(run.events);
  const history = new Map();
  const chosenAt = new Map();
  const firstRunAt = new Map();
  let stored = [];
  let dropped = 0;
  const events = run.events.map((raw, index) => {
    const event = { raw, index, op: raw.op, phase: raw.op === "pass" ? raw.phase : raw.op, ...names[index] };
    Object.assign(event, readPass(raw, sequence));
    event.counted = raw.op === "pass" && raw.phase !== "training";
    if (event.counted) {
      noteHistory(history, event);
      for (const query of event.queries) if (!firstRunAt.has(query)) firstRunAt.set(query, index);
      for (const out of event.part?.out ?? []) chosenAt.set(out.chosen, index);
    }
    event.gone = raw.op === "drop" && raw.sequence === sequence ? raw.rows : [];
    dropped += sizeOf(event.gone);
    stored = storedAfter(stored, event);
    return Object.assign(event, { stored, dropped, emitted: chosenAt.size });
  });
  return {
    name: run.name,
    cache: run.cache,
    byCall: passesByCall(events),
    keeps: run.cache !== "none",
    events,
    history,
    chosenAt,
    firstRunAt,
  };
}

function readContexts(runs) {
  const found = new Map();
  for (const run of runs)
    for (const event of run.events)
      for (const [key, rows] of Object.entries(event.part?.contexts ?? {}))
        spread(event.part.new).forEach((token, k) => {
          if (!found.has(`${key}.${token}`)) found.set(`${key}.${token}`, rows[k]);
        });
  return found;
}

/** The record, prepared: runs with and without a cache, histories, contexts, layers and heads. Or a TraceError. */
export function readTrace(data, sequence = 0) {
  checkVersion(data);
  const runs = data.runs.map((run) => readRun(run, sequence));
  const { prompt, tokens } = data.sequences[sequence];
  let columns = prompt;
  for (const run of runs)
    for (const event of run.events) for (const query of event.queries) columns = Math.max(columns, query + 1);
  return {
    model: data.model,
    sequence,
    sequences: data.sequences.length,
    prompt,
    tokens,
    columns,
    runs,
    withCache: runs.find((run) => run.keeps) ?? null,
    withoutCache: runs.find((run) => !run.keeps) ?? null,
    layers: [...new Set(data.recorded.map(([layer]) => layer))].sort((a, b) => a - b),
    recorded: data.recorded,
    weightRows: data.weights.rows,
    values: data.values ?? [],
    contexts: readContexts(runs),
    decoded: new Map(),
    means: new Map(),
  };
}

/** The record of each sequence; the first is there in every trace. */
export function readSequences(data) {
  const first = readTrace(data);
  return data.sequences.map((_, sequence) => (sequence ? readTrace(data, sequence) : first));
}

export function headsOf(record, layer) {
  return record.recorded.filter(([l]) => l === layer).map(([, head]) => head);
}

/** A head by its name, else by its number from 1; null is the mean of all. */
export function headName(record, head) {
  if (head === null) return VIEW.labels.mean;
  return record.model.head_names?.[head] ?? fillText(VIEW.labels.head, { number: head + 1 });
}

export function decodeWeights(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true) / FULL_WEIGHT);
}

/** Attention weights of one query over the tokens it may look at, or null where they were not recorded. */
export function weightsOf(record, token, layer, head) {
  const key = `${record.sequence}.${token}.${layer}.${head}`;
  if (!(key in record.weightRows)) return null;
  if (!record.decoded.has(key)) record.decoded.set(key, decodeWeights(record.weightRows[key]));
  return record.decoded.get(key);
}

export function contextOf(record, token, layer, head) {
  return record.contexts.get(`${layer}.${head}.${token}`) ?? null;
}

/** Contents of K or V ("k", "v") of one token, or null. */
export function contentOf(record, kind, token, layer) {
  const kept = record.values.find((v) => v.layer === layer && v.sequence === record.sequence);
  return kept?.[kind]?.[token] ?? null;
}
