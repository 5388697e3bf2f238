import assert from "node:assert/strict";
import { test } from "node:test";
import { clippedText, formatNumber, formatPercent, visibleText } from "../../helpers/stepper/js/format.js";
import {
  describe,
  keyTexts,
  ledgerOf,
  plainSentence,
  rowsNote,
  sentenceOf,
  shapesOf,
  sumOf,
} from "../../helpers/stepper/js/words.js";
import { frame, pass, record, traceOf } from "./traces.mjs";

const toy = record("toy");
const say = (shown) => plainSentence(sentenceOf(shown));

test("the sentences of the toy", () => {
  assert.equal(
    say(frame(toy, 0)),
    "Training, for reference. All 4 tokens run together, as in prefill: 10 pairs. Every row has a target, the token that comes next. Nothing is kept.",
  );
  const prefill =
    "All 4 prompt tokens run through together. Each makes its own row of K and V, and looks at itself and what stands before it: 10 pairs. The last row gives the first new word, nice.";
  assert.equal(say(frame(toy, 1)), prefill);
  assert.equal(say(frame(toy, 1, { cached: false })), `${prefill} K and V are dropped after the pass.`);
  assert.equal(
    say(frame(toy, 2)),
    "Only nice runs. It adds one row to K and V, reads the 4 rows of the prefill, and looks at 5 tokens: 5 pairs instead of 15. The word that comes out is <eos>: stop.",
  );
  assert.equal(
    say(frame(toy, 2, { cached: false })),
    "Without the cache all 5 tokens run to get the one new row: 15 pairs, 10 of them for the second time. The word that comes out is the same, <eos>: stop.",
  );
});

test("the sentences of the long run name what was kept, and say when the maximum ends it", () => {
  const long = record("long");
  assert.match(
    say(frame(long, 3)),
    /reads the 5 rows kept so far, and looks at 6 tokens: 6 pairs instead of 21\. The word that comes out is nice\.$/,
  );
  assert.match(say(frame(long, 8)), /The word that comes out is nice, the last that was asked for\.$/);
  assert.match(say(frame(long, 8, { cached: false })), /66 pairs, 55 of them scored before, up to 7 times/);
});

test("scored before, twice at most", () => {
  assert.match(say(frame(record("long"), 3, { cached: false })), /15 of them scored before, up to twice\. /);
});

test("one token as the prompt", () => {
  assert.match(
    say(frame(record("one"), 0)),
    /^The one prompt token runs\. It makes its row of K and V and looks at itself: 1 pair\. /,
  );
});

test("chunks of a prompt, and events of a later kind", () => {
  const made = traceOf(
    4,
    ["a", "b", "c", "d"],
    [
      pass(
        "prefill",
        { new: [[0, 2]], visible: [[[0, 1]], [[0, 2]]], written: [[0, 2]], kept: [0, 2] },
        { pairs: 3, kv_rows: 2 },
      ),
      pass(
        "prefill",
        { new: [[2, 4]], visible: [[[0, 3]], [[0, 4]]], read: [[0, 2]], written: [[2, 4]], kept: [2, 4] },
        { pairs: 7, rows_read: 2, kv_rows: 2 },
      ),
      { op: "swap", say: "The rows move to the host's memory." },
      { op: "drop", sequence: 0, rows: [[0, 1]], why: "window", say: "The oldest row leaves." },
    ],
  );
  assert.equal(
    say(frame(made, 0)),
    "Tokens 1 to 2 of the 4 of the prompt run together, add 2 rows to K and V: 3 pairs. The prompt is not finished, so no word comes out yet.",
  );
  assert.match(say(frame(made, 1)), /read the 2 rows kept before: 7 pairs/);
  assert.equal(say(frame(made, 2)), "The rows move to the host's memory.");
  assert.equal(say(frame(made, 3)), "The oldest row leaves.");
  assert.equal(made.withCache.events[2].name, "Swap");
  assert.equal(ledgerOf(frame(made, 0)).holds, false);
  assert.match(ledgerOf(frame(made, 0)).text, /^2 cached: the prompt is not finished/);
  assert.equal(rowsNote(frame(made, 3)), "1 row dropped");
});

test("the ledger is an equation only where the counted numbers satisfy it", () => {
  assert.deepEqual(ledgerOf(frame(toy, 1)), { holds: true, text: "4 cached = 4 prompt + 1 emitted − 1" });
  assert.deepEqual(ledgerOf(frame(toy, 2)), { holds: true, text: "5 cached = 4 prompt + 2 emitted − 1" });
  assert.deepEqual(ledgerOf(frame(record("long"), 8)).text, "11 cached = 4 prompt + 8 emitted − 1");
  assert.deepEqual(ledgerOf(frame(toy, 0)), { holds: false, text: "nothing cached: training keeps no rows" });
  assert.deepEqual(ledgerOf(frame(toy, 2, { cached: false })), {
    holds: false,
    text: "0 cached: K and V are made, used and dropped",
  });
});

test("the ledger says why it does not hold: rows were dropped, or the counts differ", () => {
  const out = [{ query: 1, top: [["c", 1, 1]], chosen: 2, how: "greedy" }];
  const wrong = traceOf(
    2,
    ["a", "b", "c"],
    [pass("prefill", { new: [[0, 2]], visible: [[[0, 1]], [[0, 2]]], written: [[0, 2]], kept: [0, 1], out })],
  );
  assert.deepEqual(ledgerOf(frame(wrong, 0)), {
    holds: false,
    text: "1 cached, not 2 prompt + 1 emitted − 1 (2)",
  });
  const dropped = traceOf(
    2,
    ["a", "b", "c"],
    [
      pass("prefill", { new: [[0, 2]], visible: [[[0, 1]], [[0, 2]]], written: [[0, 2]], kept: [0, 2], out }),
      { op: "drop", sequence: 0, rows: [[0, 1]], why: "window", say: "One row leaves." },
    ],
  );
  assert.deepEqual(ledgerOf(frame(dropped, 1)), {
    holds: false,
    text: "1 cached, not 2 prompt + 1 emitted − 1: 1 row dropped",
  });
});

test("what happens to rows, and the sums behind the contexts", () => {
  assert.equal(rowsNote(frame(toy, 1)), "4 rows written");
  assert.equal(rowsNote(frame(toy, 2)), "4 rows read, 1 written");
  assert.equal(rowsNote(frame(toy, 2, { cached: false })), "5 rows made, 4 again");
  assert.deepEqual(frame(toy, 2).weights.map(sumOf), [
    "0.5 × 20 + 0.5 × 5",
    "1 × 14",
    "1 × 10",
    "average of 5",
  ]);
  assert.deepEqual(frame(toy, 1, { row: 0 }).weights.map(sumOf), [
    "nothing to pick",
    "1 × 10",
    "1 × 10",
    "1 × 10",
  ]);
});

test("shapes and K's contents", () => {
  assert.deepEqual(shapesOf(frame(toy, 2)), {
    q: "Q 4 × 1 × 2",
    scores: "scores 4 × 1 × 5",
    k: "K 5 × 2",
    v: "V 5 × 1",
  });
  assert.deepEqual(keyTexts(toy, [0, 5]), ["no", "5"]);
  assert.deepEqual(shapesOf(frame(record("rules"), 2)).k, null);
});

test("the pass in words names every live row, what is masked, and the rows of the cache", () => {
  const lines = describe(frame(toy, 2)).map((line) => line.replaceAll(/[\u2068\u2069]/g, ""));
  assert.deepEqual(lines, [
    "Decode 1, cache on.",
    "nice (5) looks at Today (1), weather (2), is (3), so (4), nice (5).",
    "Not run in this pass: Today (1), weather (2), is (3), so (4).",
    "Rows of K and V written: nice (5).",
    "Rows of K and V read: Today (1), weather (2), is (3), so (4).",
  ]);
  assert.match(describe(frame(toy, 1))[1], /masked: /);
  const more = describe(frame(toy, 2), new Set(["contexts", "prediction", "ledger"])).slice(5);
  assert.deepEqual(
    more.map((line) => line.replaceAll(/[\u2068\u2069]/g, "")),
    [
      "Contexts of nice (5): even 12.5, newest 14, first 10, all 10.",
      "Next word (greedy): nice 13.4%, warm 4.9%, delicious 0.4%, <eos> 81.2%. Chosen: <eos>.",
      "Ledger: 5 cached = 4 prompt + 2 emitted − 1.",
    ],
  );
  assert.match(describe(frame(toy, 0), new Set(["targets"])).at(-1), /^Targets, row by row: .*weather.*nice/);
  const long = describe(frame(record("n64"), 61, { cached: false }));
  assert.ok(long.join(" ").length < 1500, "64 rows are summed up");
});

test("numbers and texts", () => {
  assert.deepEqual([10, 12.5, 31 / 3, 2e-8, -4, 0.125].map(formatNumber), [
    "10",
    "12.5",
    "10.33",
    "0",
    "−4",
    "0.13",
  ]);
  assert.deepEqual([0.7233, 0.0001, 0, 1].map(formatPercent), ["72.3%", "<0.1%", "0.0%", "100.0%"]);
  assert.equal(visibleText("\u200b"), "U+200B");
  assert.equal(visibleText(""), "(empty)");
  assert.equal(visibleText(" \n"), "U+0020 U+000A");
  assert.equal(visibleText("<b>"), "<b>");
  assert.equal(clippedText("x".repeat(200)).length, 24);
});
