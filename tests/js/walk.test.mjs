// Every event, layer, sequence, head and line of every trace, held against tests/expected.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import VIEW from "../../helpers/stepper/view.json" with { type: "json" };
import { candidates } from "../../helpers/stepper/js/board.js";
import { formatNumber } from "../../helpers/stepper/js/format.js";
import * as states from "../../helpers/stepper/js/frame.js";
import { headsOf, readTrace } from "../../helpers/stepper/js/trace.js";
import { shades } from "../../helpers/stepper/js/ribbon.js";
import {
  describe,
  ledgerOf,
  plainSentence,
  rowsNote,
  sentenceOf,
  sumOf,
} from "../../helpers/stepper/js/words.js";
import { frame, load } from "./traces.mjs";

const ALL = new Set(["contexts", "targets", "prediction", "ledger", "weights"]);
const { now, masked, earlier } = VIEW.marks;
const SIGNS = ["", now, null, masked, earlier, "-"]; // by state: nothing, now, again, masked, earlier, coming
const rounded = (x) => Number(x.toFixed(6));

function grid({ run, event, columns }) {
  return columns.map((_, i) => {
    const { states: row, counts } = states.rowCells(run, event.index, i, 0, columns.length);
    return Array.from(row, (state, j) => SIGNS[state] ?? String(counts[j]));
  });
}

/** The marks of a trace in a grid of all columns, with the rows to come. */
function wholeGrid(want) {
  const size = want.columns;
  const sees = (i, j) => (want.coming[i]?.includes(j) ? "-" : "");
  return Array.from({ length: size }, (_, i) =>
    Array.from({ length: size }, (_, j) => want.marks[i]?.[j] || sees(i, j)),
  );
}

function checkEvent(shown, want) {
  const { columns, event, run, work, record } = shown;
  assert.deepEqual(grid(shown), wholeGrid(want));
  assert.deepEqual(event.queries, want.live);
  assert.equal(columns.length, want.columns);
  const tokens = record.tokens.map((_, i) => states.tokenState(record, run, event, i));
  assert.deepEqual(
    tokens.map((t) => [t.text, t.position, t.origin, t.state, t.live, t.fate]),
    want.tokens,
  );
  assert.deepEqual(
    columns.map((c) => c.row),
    want.rows.slice(0, columns.length),
  );
  for (const { index, live } of columns)
    if (!live) assert.equal(states.lastPassOf(run, event.index, index)?.toLowerCase(), want.untouched[index]);
  assert.deepEqual([...shown.targets.values()], want.targets);
  const { counts, plain } = want.work;
  for (const { name, done, total, avoided } of work.bars)
    assert.deepEqual(
      [done, total, avoided],
      [counts?.[name] ?? 0, plain?.[name] ?? null, plain ? plain[name] - counts[name] : 0],
    );
  assert.deepEqual([work.stored, work.read], [want.work.kept, want.work.read]);
  assert.deepEqual([work.soFar, work.soFarWithout], [want.work["so far"], want.work.without]);
  assert.equal(rowsNote(shown), want.note);
  assert.equal(ledgerOf(shown).text, want.ledger);
  const said = plainSentence(sentenceOf(shown));
  for (const fact of want.sentence) assert.ok(said.includes(fact), `${said} says ${fact}`);
  const dear = want.sentence.some((fact) => fact.startsWith(" instead"));
  assert.equal(said.includes(" instead of "), dear, said);
}

function checkView(shown, want, view) {
  const { row } = view;
  assert.deepEqual([shown.row, shown.head], [row, view.head]);
  const shares = {};
  for (const query of Object.keys(want.weights).map(Number))
    for (const [j, share] of states.sharesOf(shown, query) ?? []) shares[`${query}.${j}`] = share;
  assert.deepEqual(Object.keys(shares), Object.keys(view.shares));
  for (const [key, share] of Object.entries(view.shares))
    assert.equal(rounded(shares[key]), rounded(share), key);
  const dark = [...shades(shown)].map(([j, shade]) => [j, Math.round(100 * shade)]);
  assert.deepEqual(Object.fromEntries(dark), view.shades);
  shown.weights.forEach((line, h) => {
    const { name, weights, sum } = view.lines[h];
    assert.equal(line.name, name);
    const found = line.weights && line.columns.map((j, k) => [j, rounded(line.weights[k])]);
    assert.deepEqual(found, weights && weights.map(([j, w]) => [j, rounded(w)]));
    const terms = sumOf(line);
    const text = Array.isArray(terms) ? terms.map((term) => term.text).join(" + ") : terms;
    assert.equal(text && `${text} = ${formatNumber(line.context[0])}`, sum);
    if (Array.isArray(terms))
      for (const { column, text } of terms)
        assert.ok(text.startsWith(`${formatNumber(weights.find(([j]) => j === column)[1])} ×`));
  });
  assert.equal(shown.weights.length, view.lines.length);
  const contexts = [...shown.contexts].filter(([query]) => query in want.weights);
  assert.deepEqual(Object.fromEntries(contexts.map(([q, all]) => [q, all.map(formatNumber)])), view.contexts);
  checkOut(shown.out, view.out);
  const lines = describe(shown, ALL);
  const rest = lines.slice(want.words.length);
  assert.deepEqual(
    [lines.slice(0, want.words.length), rest.slice(0, view.said.length)],
    [want.words, view.said],
  );
  assert.equal(rest.at(-1), `Ledger: ${want.ledger}.`);
  assert.equal(
    rest.some((line) => line.startsWith("Contexts of ")),
    row in view.contexts,
  );
}

function checkOut(out, want) {
  if (!want) return assert.equal(out, null);
  assert.deepEqual([out.query, out.chosen, out.how], [want.query, want.chosen, want.how]);
  assert.deepEqual(
    out.top.map(({ word, logit, p }) => [word, logit, p]),
    want.top,
  );
  for (const shown of [out.top, candidates(out)])
    assert.deepEqual(
      shown.filter((c) => c.chosen).map((c) => c.word),
      [want.chosen],
    );
  assert.ok(candidates(out).length <= 8);
}

for (const [name, looks] of Object.entries(load("expected")))
  test(`every look at ${name}`, () => {
    const data = load(name);
    const records = data.sequences.map((_, sequence) => readTrace(data, sequence));
    for (const [[run, event, layer, sequence], want, views] of looks) {
      const record = records[sequence];
      const at = { cached: run === "cached", layer };
      const first = frame(record, event, at);
      assert.equal(first.row, want.live.at(-1) ?? null, "the last line of the pass is the first chosen");
      checkEvent(first, want);
      assert.deepEqual(headsOf(record, layer), want.heads);
      for (const { index, k, v } of first.columns) {
        const kept = record.values.find((v) => v.layer === layer && v.sequence === sequence);
        assert.deepEqual([k, v], [kept?.k?.[index] ?? null, kept?.v[index] ?? null]);
      }
      for (const view of views) checkView(frame(record, event, { ...at, ...view }), want, view);
    }
  });
