// What a page has to show at each look, with every head and every line, as the pure modules work it out of a trace:
// `node shown.mjs trace.json < looks.json`. The tests in a browser are held to this, and this by walk.test.mjs.
import { readFileSync } from "node:fs";
import VIEW from "../../helpers/stepper/view.json" with { type: "json" };
import { formatNumber, visibleText } from "../../helpers/stepper/js/format.ts";
import * as states from "../../helpers/stepper/js/frame.ts";
import { headName, headsOf, readTrace } from "../../helpers/stepper/js/trace.ts";
import * as words from "../../helpers/stepper/js/words.ts";

const [now, masked, earlier] = ["●", VIEW.marks.masked, "○"];
const SIGNS = ["", now, null, masked, earlier, "-"]; // by state: nothing, now, again, masked, earlier, coming
const SAMPLED = 20; // of more tokens than this not every line is looked into

/** The grid in symbols: scored now or so many times, masked, scored before, to come. */
export function gridOf({ run, event, columns }) {
  return columns.map((_, i) => {
    const { states: row, counts } = states.rowCells(run, event.index, i, 0, columns.length);
    return Array.from(row, (state, j) => SIGNS[state] ?? String(counts[j]));
  });
}

/** Heads, their mean first, and lines, the last first, in pairs: each comes at least once. */
function pairsOf(frame, heads) {
  const size = frame.columns.length;
  const sample = (i) => size <= SAMPLED || i < 2 || i === size >> 1 || i >= size - 4;
  const there = frame.columns.filter(
    (c) => sample(c.index) && states.hasRun(frame.run, frame.event, c.index),
  );
  const rows = there.length ? there.map((c) => c.index).reverse() : [null];
  const many = Math.max(rows.length, heads.length + 1);
  return Array.from({ length: many }, (_, k) => [
    [null, ...heads][k % (heads.length + 1)],
    rows[k % rows.length],
  ]);
}

function viewOf(frame, rows) {
  const shares = rows.flatMap((i) =>
    [...(states.sharesOf(frame, i) ?? [])].map(([j, w]) => [`${i}.${j}`, w]),
  );
  const lines = frame.weights.map((line) => {
    const sum = words.sumOf(line);
    const terms = Array.isArray(sum) ? sum.map((term) => term.text).join(" + ") : sum;
    return {
      head: line.head,
      name: line.name,
      weights: line.weights && line.columns.map((j, k) => [j, line.weights[k]]),
      sum: terms && `${terms} = ${formatNumber(line.context[0])}`,
    };
  });
  return {
    head: frame.head,
    row: frame.row,
    shares: Object.fromEntries(shares),
    shades: Object.fromEntries([...states.shades(frame)].map(([j, shade]) => [j, Math.round(100 * shade)])),
    lines,
    contexts: Object.fromEntries([...frame.contexts].map(([q, all]) => [q, all.map(formatNumber)])),
    out: frame.out && { ...frame.out, top: states.candidatesOf(frame.out) },
    words: words.describe(frame, true),
  };
}

/** What stands on the page whichever head and line are chosen, and its views by head and line. */
export function shownAt(record, event, cached, layer) {
  const at = { event, cached, layer, head: null, row: null };
  const frame = states.frameOf(record, at);
  const { run, columns } = frame;
  const heads = headsOf(record, layer);
  const pairs = pairsOf(frame, heads);
  const rows = [...new Set(pairs.map(([, row]) => row).filter((row) => row !== null))];
  const last = columns.map(({ index, live }) => [index, live ? null : states.lastPassOf(run, event, index)]);
  return {
    pass: frame.event.name,
    live: frame.event.queries,
    columns: columns.length,
    marks: gridOf(frame),
    tokens: record.tokens
      .map((_, i) => states.tokenState(record, run, frame.event, i))
      .map((t) => [visibleText(t.text), t.place, t.origin, t.state, t.live]),
    entries: columns.map((c) => c.entry),
    untouched: Object.fromEntries(
      last.filter(([, pass]) => pass).map(([i, pass]) => [i, pass.toLowerCase()]),
    ),
    lookedInto: rows,
    heads,
    names: heads.map((head) => headName(record, head)),
    targets: [...frame.targets.values()],
    work: frame.work,
    note: words.entriesNote(frame),
    ledger: words.ledgerOf(frame).text,
    sentence: words.plainSentence(words.sentenceOf(frame)),
    views: pairs.map(([head, row]) => viewOf(states.frameOf(record, { ...at, head, row }), rows)),
  };
}

if (process.argv[1] === import.meta.filename || process.argv[1]?.endsWith("shown.mjs")) {
  const data = JSON.parse(readFileSync(process.argv[2], "utf8"));
  const record = readTrace(data);
  const shown = JSON.parse(readFileSync(0, "utf8")).map(([name, event, layer]) => {
    const { cache } = data.runs.find((run) => run.name === name);
    return shownAt(record, event, cache !== "none", layer);
  });
  process.stdout.write(JSON.stringify(shown));
}
