// What one pass looks like: the state of every cell, row and column, as plain data for the drawing modules.
import VIEW from "../view.json" with { type: "json" };
import {
  contextOf,
  contentOf,
  headName,
  headsOf,
  holds,
  passUpTo,
  samePass,
  sizeOf,
  spread,
  weightsOf,
} from "./trace.js";

export const NOTHING = 0; // no score here
export const NOW = 1; // scored in this pass
export const AGAIN = 2; // scored in this pass, and before
export const MASKED = 3; // scored in this pass and thrown away
export const EARLIER = 4; // scored in an earlier pass
export const COMING = 5; // to be scored in a later pass

/** States and counts of the cells of one row, for columns from `start` to `stop`. */
export function rowCells(run, eventIndex, query, start, stop) {
  const event = run.events[eventIndex];
  const states = new Uint8Array(stop - start);
  const counts = new Uint32Array(stop - start);
  const live = event.visible.has(query);
  const history = run.history.get(query) ?? [];
  for (const { ranges, events } of history) {
    const times = events.filter((e) => e <= eventIndex).length;
    if (times) forEachIn(ranges, start, stop, (j) => (counts[j - start] += times));
  }
  if (!live) {
    for (let j = 0; j < states.length; j++) if (counts[j]) states[j] = EARLIER;
    const ran = run.firstRunAt.get(query) ?? -1; // -1: never
    if (ran > eventIndex) forEachIn(history[0].ranges, start, stop, (j) => (states[j - start] = COMING));
    return { states, counts };
  }
  forEachIn(event.there, start, stop, (j) => (states[j - start] = MASKED));
  forEachIn(event.visible.get(query), start, stop, (j) => {
    if (!event.counted) counts[j - start] = 1;
    states[j - start] = counts[j - start] > 1 ? AGAIN : NOW;
  });
  return { states, counts };
}

function forEachIn(ranges, start, stop, visit) {
  for (const [a, b] of ranges) for (let j = Math.max(a, start); j < Math.min(b, stop); j++) visit(j);
}

/** K and V of one token: written, read, rest, made (used and dropped), dropped, empty. */
export function rowState(event, token) {
  const part = event.part;
  if (holds(event.gone, token)) return "dropped";
  if (part && holds(part.written, token)) return "written";
  if (part && holds(part.read, token)) return "read";
  if (holds(event.stored, token)) return "rest";
  return event.visible.has(token) ? "made" : "empty";
}

/**
 * A token's state: present, emitted (chosen, not yet run), or absent; live if it runs in this pass. The fate of a
 * draft that has run: accepted if its word was chosen, else rejected.
 */
export function tokenState(record, run, event, index) {
  const token = record.tokens[index];
  const live = event.visible.has(index);
  const chosen = run.chosenAt.get(index) <= event.index;
  const ran = hasRun(run, event, index);
  let state = "absent";
  if (token.origin === "prompt" || ran) state = "present";
  else if (chosen) state = "emitted";
  const fate = token.origin !== "draft" || !ran ? "" : chosen ? "accepted" : "rejected";
  return { index, text: token.text, position: token.position, origin: token.origin, state, live, fate };
}

/** Whose work an untouched row is: the name of the last pass that ran it, or null. */
export function lastPassOf(run, eventIndex, query) {
  let last = -1;
  for (const { events } of run.history.get(query) ?? [])
    for (const e of events)
      if (e < eventIndex || (e === eventIndex && !run.events[e].visible.has(query))) last = Math.max(last, e);
  return last < 0 ? null : run.events[last].name;
}

/** Whether a token has a line: it runs in this pass, or ran in one before. */
export function hasRun(run, event, token) {
  return event.visible.has(token) || run.firstRunAt.get(token) <= event.index;
}

/** The token whose line is shown: the wanted one if it has run, else the last that runs in this pass. */
export function chosenRow(run, event, wanted) {
  if (wanted !== null && hasRun(run, event, wanted)) return wanted;
  return event.queries.at(-1) ?? null;
}

/** What a token was looking at when it last ran, up to a pass: ranges, or null if it has not run. */
export function lookedAt(run, event, query) {
  if (event.visible.has(query)) return event.visible.get(query);
  const past = (run.history.get(query) ?? []).filter(({ events }) => events[0] <= event.index);
  const last = ({ events }) => events.findLast((e) => e <= event.index);
  return past.length ? past.reduce((a, b) => (last(b) > last(a) ? b : a)).ranges : null;
}

/** Weights of one token in a layer: of a head, or the mean of all that were recorded (head null). */
export function weightsIn(record, run, event, query, layer, head) {
  const ranges = lookedAt(run, event, query);
  const weights =
    ranges && (head === null ? meanOf(record, query, layer) : weightsOf(record, query, layer, head));
  const fits = weights && weights.length === sizeOf(ranges);
  return { columns: ranges ? spread(ranges) : [], weights: fits ? weights : null };
}

function meanOf(record, query, layer) {
  const key = `${query}.${layer}`;
  if (!record.means.has(key)) {
    const rows = headsOf(record, layer).map((head) => weightsOf(record, query, layer, head));
    const whole = rows.length && rows.every((row) => row && row.length === rows[0].length);
    record.means.set(
      key,
      whole ? rows[0].map((_, k) => rows.reduce((sum, row) => sum + row[k], 0) / rows.length) : null,
    );
  }
  return record.means.get(key);
}

/** Heads that have a line of their own: all of a few, else the chosen one; null is the mean of all. */
export function headsShown(record, layer, head) {
  const heads = headsOf(record, layer);
  return heads.length <= VIEW.heads_at_once ? heads : [head];
}

/** The weights of a line in the grid, by column, those that are as good as none as 0; null where there are none. */
export function sharesOf({ record, run, event, layer, head }, query) {
  const { columns, weights } = weightsIn(record, run, event, query, layer, head);
  const share = (weight) => (isPicked(weight, columns.length) ? weight : 0);
  return weights && new Map(columns.map((j, k) => [j, share(weights[k])]));
}

function weightLine(record, run, event, row, layer, head) {
  const looks =
    row === null ? { columns: [], weights: null } : weightsIn(record, run, event, row, layer, head);
  const values = looks.columns.map((j) => contentOf(record, "v", j, layer));
  return {
    head,
    name: headName(record, head),
    ...looks,
    values: values.every((v) => v !== null && v.length === 1) ? values.map((v) => v[0]) : null,
    context: row === null || head === null ? null : contextOf(record, row, layer, head),
  };
}

/** Whether a weight counts: a twentieth of an equal share at least. The rest is as good as none. */
export function isPicked(weight, columns) {
  return weight * columns >= VIEW.picked;
}

function outOf(record, event, row) {
  const outs = event.part?.out ?? [];
  const out = outs.find((o) => o.query === row) ?? outs[outs.length - 1];
  if (!out) return null;
  const chosen = record.tokens[out.chosen].text;
  const at = out.top.findIndex(([word]) => word === chosen);
  return {
    query: out.query,
    chosen,
    how: out.how,
    top: out.top.map(([word, logit, p], k) => ({ word, logit, p, chosen: k === at })),
  };
}

function targetsOf(record, event) {
  if (!event.part?.target) return new Map();
  return new Map(event.queries.map((query, k) => [query, record.tokens[event.part.target[k]].text]));
}

/** Work of this pass and so far: counts of this run beside those of the run without a cache. */
export function workOf(record, run, event) {
  const plain = samePass(record.withoutCache, event);
  const largest = (name) =>
    Math.max(1, ...record.runs.flatMap((r) => r.events.map((e) => e.raw.counts?.[name] ?? 0)));
  const bar = (name) => {
    const done = event.raw.counts?.[name] ?? 0;
    const total = plain?.raw.counts[name] ?? null; // null: nothing to compare with
    return { name, done, total, avoided: total === null ? 0 : total - done, scale: largest(name) };
  };
  const soFar = (r, upTo) =>
    r.events.reduce((sum, e) => sum + (e.counted && e.index <= upTo.index ? e.raw.counts.positions : 0), 0);
  const reached = passUpTo(run, event);
  const without = run.keeps && reached ? samePass(record.withoutCache, reached) : null;
  return {
    bars: [bar("positions"), bar("pairs")],
    stored: event.part ? event.part.kept[1] : sizeOf(event.stored),
    read: event.counts?.rows_read ?? 0,
    soFar: soFar(run, event),
    soFarWithout: without ? soFar(record.withoutCache, without) : null,
  };
}

/** The run that is shown: with its cache or without, where the record has both. */
export function runOf(record, cached) {
  return (cached ? record.withCache : record.withoutCache) ?? record.runs[0];
}

/** What one pass shows. `view`: {event, cached, layer, head, row}; event: index in the run shown. */
export function frameOf(record, view) {
  const run = runOf(record, view.cached);
  const event = run.events[view.event];
  const row = chosenRow(run, event, view.row);
  const head = headsOf(record, view.layer).includes(view.head) ? view.head : null;
  const lines = headsShown(record, view.layer, head);
  const heads = lines.filter((one) => one !== null);
  const columns = [];
  for (let j = 0; j < record.columns; j++)
    columns.push({
      ...tokenState(record, run, event, j),
      row: rowState(event, j),
      k: contentOf(record, "k", j, view.layer),
      v: contentOf(record, "v", j, view.layer),
    });
  const contexts = new Map();
  for (const query of event.queries) {
    const numbers = heads.map((one) => contextOf(record, query, view.layer, one));
    if (numbers.length && numbers.every((c) => c !== null && c.length === 1))
      contexts.set(
        query,
        numbers.map((c) => c[0]),
      );
  }
  return {
    record,
    run,
    event,
    other: samePass(run.keeps ? record.withoutCache : record.withCache, event),
    layer: view.layer,
    row,
    columns,
    heads: heads.map((one) => ({ head: one, name: headName(record, one) })),
    head,
    weights: lines.map((one) => weightLine(record, run, event, row, view.layer, one)),
    contexts,
    out: outOf(record, event, row),
    targets: targetsOf(record, event),
    work: workOf(record, run, event),
    shapes: event.raw.shapes?.find((s) => s.layer === view.layer) ?? null,
  };
}
