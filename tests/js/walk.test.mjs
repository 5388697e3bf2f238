// Every pass, layer, row and head of every trace, held against tests/expected.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import VIEW from "../../helpers/stepper/view.json" with { type: "json" };
import { candidates } from "../../helpers/stepper/js/board.js";
import { formatNumber } from "../../helpers/stepper/js/format.js";
import {
  AGAIN,
  EARLIER,
  headGroups,
  lastPassOf,
  MASKED,
  NOTHING,
  NOW,
  rowCells,
} from "../../helpers/stepper/js/frame.js";
import {
  describe,
  ledgerOf,
  plainSentence,
  rowsNote,
  sentenceOf,
  sumOf,
} from "../../helpers/stepper/js/words.js";
import { frame, load, record } from "./traces.mjs";

const { marks } = VIEW;
const SIGNS = { [NOTHING]: "", [NOW]: marks.now, [MASKED]: marks.masked, [EARLIER]: marks.earlier };

function grid({ run, event }, size) {
  return Array.from({ length: size }, (_, i) => {
    const { states, counts } = rowCells(run, event.index, i, 0, size);
    return Array.from(states, (state, j) => (state === AGAIN ? String(counts[j]) : SIGNS[state]));
  });
}

function checkPass(shown, want) {
  const {
    columns,
    event,
    run,
    work,
    record: { tokens },
  } = shown;
  assert.deepEqual(grid(shown, want.marks.length), want.marks);
  assert.deepEqual(event.queries, want.live);
  const live = columns.filter((c) => c.live).map((c) => c.index);
  assert.deepEqual(live, want.live);
  assert.deepEqual(
    columns.map((c) => c.row),
    want.rows.slice(0, columns.length),
  );
  assert.deepEqual(
    columns.map((c) => [c.text, c.position]),
    tokens.slice(0, columns.length).map((t) => [t.text, t.position]),
  );
  for (const { index } of columns.filter((c) => !c.live))
    assert.equal(lastPassOf(run, event.index, index)?.toLowerCase(), want.untouched[index]);
  assert.deepEqual([...shown.targets.values()], want.targets);
  const { counts, plain } = want.work;
  for (const bar of work.bars)
    assert.deepEqual(
      [bar.done, bar.total, bar.avoided],
      [counts[bar.name], plain?.[bar.name] ?? null, plain ? plain[bar.name] - counts[bar.name] : 0],
    );
  assert.deepEqual([work.stored, work.read], [want.work.kept, counts.rows_read]);
  assert.deepEqual([work.soFar, work.soFarWithout], [want.work["so far"], want.work.without]);
  assert.equal(rowsNote(shown), want.note);
  assert.equal(ledgerOf(shown).text, want.ledger);
  checkWords(shown, want);
}

function checkWords(shown, want) {
  const said = plainSentence(sentenceOf(shown));
  const { counts, plain } = want.work;
  assert.match(said, new RegExp(`\\b${counts.pairs} pairs?\\b`));
  if (shown.event.phase === "decode" || shown.event.phase === "verify") {
    const dearer = shown.run.keeps && plain.pairs > counts.pairs;
    assert.equal(said.includes(` instead of ${plain.pairs.toLocaleString("en")}.`), dearer, said);
    const fresh = want.live.filter((q) => !(q in want.untouched) && want.rows[q] !== "read").length;
    if (shown.run.keeps && fresh > 1) assert.ok(said.startsWith(`${fresh} new tokens run together`), said);
  }
  if (want.out.length) assert.ok(said.includes(want.out.at(-1).chosen), said);
  const lines = describe(shown, new Set(["ledger"])).join("\n");
  assert.ok(lines.includes(`Ledger: ${want.ledger}.`));
  for (const [state, word] of [
    ["read", "read"],
    ["written", "written"],
    ["rest", "at rest"],
  ])
    assert.equal(lines.includes(`Rows of K and V ${word}: `), want.rows.includes(state), word);
}

function checkRow(shown, want, from) {
  const { row, weights, contexts, out } = shown;
  weights.forEach((line, h) => {
    const at = from + h;
    assert.equal(line.name, want.names[at]);
    assert.equal(shown.heads[h].name, want.names[at]);
    const found = line.weights && line.columns.map((j, k) => [j, line.weights[k]]);
    assert.deepEqual(found, want.weights[row][at]);
    assert.deepEqual(line.context, [want.contexts[row][at]]);
    const sum = sumOf(line);
    assert.equal(sum && `${sum} = ${formatNumber(line.context[0])}`, want.sums[row][at]);
  });
  assert.deepEqual(contexts.get(row), want.contexts[row].slice(from, from + weights.length));
  const mine = want.out.find((o) => o.query === row) ?? want.out.at(-1);
  if (!mine) return assert.equal(out, null);
  assert.deepEqual([out.query, out.chosen, out.how], [mine.query, mine.chosen, mine.how]);
  assert.deepEqual(
    out.top.map(({ word, logit, p }) => [word, logit, p]),
    mine.top,
  );
  assert.deepEqual(
    out.top.filter((c) => c.chosen).map((c) => c.word),
    [mine.chosen],
  );
  assert.deepEqual(
    candidates(out)
      .filter((c) => c.chosen)
      .map((c) => c.word),
    [mine.chosen],
  );
  assert.ok(candidates(out).length <= 8);
}

for (const [name, passes] of Object.entries(load("expected")))
  test(`every pass of ${name}`, () => {
    const made = record(name);
    for (const [run, event, layer, want] of passes) {
      const view = { cached: run === "cached", layer };
      checkPass(frame(made, event, view), want);
      const groups = headGroups(made, layer);
      assert.equal(groups.flat().length, want.names.length);
      groups.forEach((heads, headGroup) => {
        assert.ok(heads.length <= VIEW.heads_at_once);
        for (const row of want.live)
          checkRow(
            frame(made, event, { ...view, row, headGroup }),
            want,
            groups.slice(0, headGroup).flat().length,
          );
      });
      frame(made, event, view).columns.forEach((c) => {
        const kept = made.values.find((v) => v.layer === layer);
        assert.deepEqual([c.k, c.v], [kept.k?.[c.index] ?? null, kept.v[c.index]]);
      });
    }
  });
