// What one pass looks like: the state of every cell, row and column, as plain data for the drawing modules.
import VIEW from "../view.json" with { type: "json" };
import { contextOf, contentOf, headName, headsOf, holds } from "./trace.ts";
import { recordIn, sizeOf, spread, weightsOf } from "./trace.ts";
import type { Pass, Ranges } from "./schema";
import type { Event, Frame, Look, Out, Run, TraceRecord } from "./types";

export const CANDIDATES = 8;

// The state of a cell; 0: no score here.
export const NOW = 1; // scored in this pass
export const AGAIN = 2; // scored in this pass, and before
export const MASKED = 3; // scored in this pass and thrown away
export const EARLIER = 4; // scored in an earlier pass
export const COMING = 5; // to be scored in a later pass
export const AHEAD = 6; // to the right of its line: seen if no mask hid it

/** States and counts of the cells of one row, for columns from `start` to `stop`; `ahead`: as if there were no mask. */
export function rowCells(
  run: Run,
  eventIndex: number,
  query: number,
  start: number,
  stop: number,
  ahead = false,
) {
  const event = run.events[eventIndex];
  const states = new Uint8Array(stop - start);
  const counts = new Uint32Array(stop - start);
  const each = (ranges: Ranges, visit: (j: number) => void) => {
    for (const [a, b] of ranges)
      for (let j = Math.max(a, start); j < Math.min(b, stop); j++) visit(j - start);
  };
  const ran = run.ranAt.get(query) ?? [];
  const times = ran.filter((e) => e <= eventIndex).length;
  const visible = event.visible.get(query);
  each(visible ?? run.events[ran[0]]?.visible.get(query) ?? [], (j) => {
    counts[j] = event.counted || !visible ? times : 1;
    states[j] = visible ? 0 : times ? EARLIER : COMING;
  });
  if (!visible) return { states, counts };
  each(event.there, (j) => (states[j] = ahead && start + j > query ? AHEAD : MASKED));
  each(visible, (j) => (states[j] = counts[j] > 1 ? AGAIN : NOW));
  return { states, counts };
}

/** K and V of one token: written, read, made (used and dropped), evicted (kept before), empty. */
function entryState(run: Run, { index, counted, counts, part, visible }: Event, token: number) {
  if (holds(part.written, token)) return "written";
  if (holds(part.read, token)) return "read";
  if (!counts.products) return "empty"; // no KV entries in this layer
  if (visible.has(token)) return counts.kv_rows ? "made" : "read"; // an earlier layer's
  return run.keeps && counted && firstRunOf(run, token) < index ? "evicted" : "empty";
}

/**
 * A token's state: present, emitted (chosen, not yet run), or absent; live if it runs in this pass. Its place in
 * the text counts from 1, also where the run counts positions from 0.
 */
export function tokenState(record: TraceRecord, run: Run, event: Event, index: number) {
  const { text, origin } = record.tokens[index];
  const chosen = (run.chosenAt.get(index) ?? Infinity) <= event.index;
  const present = origin === "prompt" || hasRun(run, event, index);
  const state = present ? "present" : chosen ? "emitted" : "absent";
  return { index, text, place: index + 1, origin, state, live: event.visible.has(index) };
}

/** Whose work an untouched row is: the name of the last pass that ran it, or null. */
export function lastPassOf(run: Run, eventIndex: number, query: number) {
  const last = run.ranAt.get(query)?.findLast((e) => e < eventIndex);
  return last === undefined ? null : run.events[last].name;
}

/** The event that ran a token first, or infinity. */
export const firstRunOf = (run: Run, token: number) => run.ranAt.get(token)?.[0] ?? Infinity;

/** Whether a token has a line: it runs in this pass, or ran in one before. */
export function hasRun(run: Run, event: Event, token: number) {
  return event.visible.has(token) || firstRunOf(run, token) <= event.index;
}

/** What a token was looking at, if it has run by a pass: ranges, or null. */
function lookedAt(run: Run, event: Event, query: number) {
  const first = run.events[firstRunOf(run, query)];
  return event.visible.get(query) ?? (first?.index <= event.index ? first.visible.get(query) : null);
}

/** Weights of one token in a layer: of a head, or the mean of all that were recorded (head null). */
export function weightsIn(
  record: TraceRecord,
  run: Run,
  event: Event,
  query: number,
  layer: number,
  head: number | null,
) {
  const ranges = lookedAt(run, event, query);
  const weights = head === null ? meanOf(record, query, layer) : weightsOf(record, query, layer, head);
  const fits = ranges && weights?.length === sizeOf(ranges);
  return { columns: spread(ranges ?? []), weights: fits ? weights : null };
}

function meanOf(record: TraceRecord, query: number, layer: number) {
  const key = `${query}.${layer}`;
  const known = record.means.get(key);
  if (known !== undefined) return known;
  const rows = headsOf(record, layer).map((head) => weightsOf(record, query, layer, head));
  const [first] = rows;
  const whole = first && rows.every((row) => row?.length === first.length);
  const mean = whole
    ? first.map((_, k) => rows.reduce((sum, row) => sum + (row?.[k] ?? 0), 0) / rows.length)
    : null;
  record.means.set(key, mean);
  return mean;
}

/** The weights of a line in the grid, by column, those that are as good as none as 0; null where there are none. */
export function sharesOf(
  { record, run, event, layer, head }: Pick<Frame, "record" | "run" | "event" | "layer" | "head">,
  query: number,
) {
  const { columns, weights } = weightsIn(record, run, event, query, layer, head);
  return (
    weights && new Map(columns.map((j, k) => [j, isPicked(weights[k], columns.length) ? weights[k] : 0]))
  );
}

/** How dark the underline of each word is, 0 to 1, relative to the word that the line looks at most. */
export function shades(frame: Frame): Map<number, number> {
  const shares = sharesOf(frame, frame.row);
  const picked = [...(shares ?? [])].filter(([, share]) => share > 0);
  const most = Math.max(...picked.map(([, share]) => share));
  return new Map(picked.map(([j, share]) => [j, share / most]));
}

/** Whether a weight counts: a twentieth of an equal share at least. The rest is as good as none. */
export const isPicked = (weight: number, columns: number) => weight * columns >= VIEW.picked;

function outOf(record: TraceRecord, { part }: Event): Out | null {
  const [out] = part.out;
  if (!out) return null;
  const chosen = record.tokens[out.chosen].text;
  const at = out.top.findIndex(([word]) => word === chosen);
  const top = out.top.map(([word, logit, p], k) => ({ word, logit, p, chosen: k === at }));
  return { query: out.query, chosen, how: out.how, top };
}

/** At most eight candidates, in their order, the chosen one among them. */
export function candidatesOf({ top }: Pick<Out, "top">) {
  const first = top.slice(0, CANDIDATES);
  const chosen = top.find((one) => one.chosen);
  return !chosen || first.includes(chosen) ? first : [...first.slice(0, -1), chosen];
}

/** Work of this pass and so far: counts of this run beside those of the run without a cache. */
function workOf(record: TraceRecord, run: Run, event: Event) {
  const plain = record.withoutCache?.events[event.index];
  const counts = record.runs.flatMap((one) => one.events.map((e) => e.counts));
  const bar = (name: string) => {
    const done = event.counts[name];
    const total = plain?.counts[name] ?? null; // null: nothing to compare with
    const scale = Math.max(1, ...counts.map((one) => one[name]));
    return { name, done, total, avoided: total === null ? 0 : total - done, scale };
  };
  const soFar = ({ events }: Run, upTo: Event) =>
    events.reduce((sum, e) => sum + (e.counted && e.index <= upTo.index ? e.counts.positions : 0), 0);
  const without = run.keeps ? plain : null;
  return {
    bars: [bar("positions"), bar("pairs")],
    stored: event.part.kept[1],
    soFar: soFar(run, event),
    soFarWithout: without && record.withoutCache && soFar(record.withoutCache, without),
  };
}

/** The run that is shown: with its cache or without, where the record has both. */
export function runOf(record: TraceRecord, cached: boolean) {
  return (cached ? record.withCache : record.withoutCache) ?? record.runs[0];
}

/** What a layer keeps instead of KV entries, by name: a state; null where it keeps entries. */
function stateOf(shapes: Pass["shapes"][number] | null) {
  if (!shapes || shapes.v !== null) return null;
  return Object.entries(shapes).filter(([, shape]) => Array.isArray(shape));
}

/** What one pass shows: of the line that is wanted if it has run, else of the last that runs in this pass. */
export function frameOf(whole: TraceRecord, { layer, ...look }: Look) {
  const record = recordIn(whole, layer);
  const run = runOf(record, look.cached);
  const event = run.events[look.event];
  const newest = event.queries[event.queries.length - 1];
  const row = look.row !== null && hasRun(run, event, look.row) ? look.row : newest;
  const known = headsOf(record, layer);
  const head = look.head !== null && known.includes(look.head) ? look.head : null;
  const lines = known.length <= VIEW.heads_at_once ? known : [head];
  const heads = lines.filter((one) => one !== null);
  const indices = [...Array(record.columns).keys()];
  const content = (kind: "k" | "v", token: number) => contentOf(record, kind, token, layer);
  /** The weights of the chosen line in a head; null is the mean of all. */
  const line = (one: number | null) => {
    const { columns, weights } = weightsIn(record, run, event, row, layer, one);
    const values = columns.map((j) => content("v", j) ?? []);
    return {
      head: one,
      name: headName(record, one),
      columns,
      weights,
      values: values.every((v) => v.length === 1) ? values.map(([v]) => v) : null,
      context: one === null ? null : contextOf(record, row, layer, one),
    };
  };
  const contexts = new Map();
  for (const query of event.queries) {
    const numbers = heads.map((one) => contextOf(record, query, layer, one));
    if (heads.length && numbers.every((c) => c?.length === 1)) contexts.set(query, numbers.flat());
  }
  return {
    ...{ record, run, event, layer, row, head, ahead: look.ahead ?? false },
    other: (run.keeps ? record.withoutCache : record.withCache)?.events[event.index] ?? null,
    columns: indices.map((j) => ({
      ...{ ...tokenState(record, run, event, j), entry: entryState(run, event, j) },
      ...{ k: content("k", j), v: content("v", j) },
    })),
    heads: heads.map((one) => ({ head: one, name: headName(record, one) })),
    weights: lines.map(line),
    contexts: contexts as Map<number, number[]>,
    out: outOf(record, event),
    targets: new Map(event.part.target?.map((token, k) => [event.queries[k], record.tokens[token].text])),
    work: workOf(record, run, event),
    state: stateOf(event.raw.shapes.find((one) => one.layer === layer) ?? null),
  };
}
