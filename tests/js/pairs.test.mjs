// Two runs laid side by side: the same passes belong together, whatever else happened between them in one run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { rowState } from "../../helpers/stepper/js/frame.js";
import { counterpart, readTrace } from "../../helpers/stepper/js/trace.js";
import { ledgerOf, plainSentence, rowsNote, sentenceOf } from "../../helpers/stepper/js/words.js";
import { frame, load, pass, record, traceOf } from "./traces.mjs";

const say = (shown) => plainSentence(sentenceOf(shown));
const there = (made, index, cached = true) => {
  const runs = cached ? [made.withCache, made.withoutCache] : [made.withoutCache, made.withCache];
  return counterpart(...runs, runs[0].events[index]).index;
};

test("an event in one run only: passes keep their pairs, and it is drawn as its sentence", () => {
  const swap = record("swap"); // an event between prefill and decode 1 of the cached run
  assert.equal(say(frame(swap, 2)), "The rows <b>move</b>.");
  assert.match(say(frame(swap, 3)), /^Only nice runs.* 5 pairs instead of 15\. /);
  assert.match(say(frame(swap, 2, { cached: false })), /^Without the cache .* the same, <eos>: stop\.$/);
  assert.deepEqual(
    frame(swap, 3).work.bars.map(({ done, total, avoided }) => [done, total, avoided]),
    [
      [1, 5, 4],
      [5, 15, 10],
    ],
  );
  assert.deepEqual([frame(swap, 2).work.soFar, frame(swap, 2).work.soFarWithout], [4, 4]);
  assert.deepEqual([frame(swap, 3).work.soFar, frame(swap, 3).work.soFarWithout], [5, 9]);
});

test("a drop after the last pass: its rows are dropped, nothing is compared, the work so far stays", () => {
  const drop = record("drop");
  const shown = frame(drop, 3);
  assert.equal(say(shown), "Two rows leave.");
  assert.deepEqual(
    shown.columns.map((c) => c.row),
    ["dropped", "dropped", "rest", "rest", "rest"],
  );
  assert.equal(shown.other, null);
  assert.deepEqual(
    shown.work.bars.map(({ done, total, avoided }) => [done, total, avoided]),
    [
      [0, null, 0],
      [0, null, 0],
    ],
  );
  assert.deepEqual([shown.work.stored, shown.work.soFar, shown.work.soFarWithout], [3, 5, 9]);
  assert.equal(ledgerOf(shown).text, "3 cached, not 4 prompt + 2 emitted − 1: 2 rows dropped");
});

test("the other run is entered at the same pass, else at the last before it that both have", () => {
  const swap = record("swap");
  assert.deepEqual(
    [0, 1, 2, 3].map((i) => there(swap, i)),
    [0, 1, 1, 2],
  );
  assert.deepEqual(
    [0, 1, 2].map((i) => there(swap, i, false)),
    [0, 1, 3],
  );
  const fewer = record("fewer"); // training, prefill, decode 1 to 4; without the cache to 2
  assert.deepEqual(
    [0, 1, 2, 3, 4, 5].map((i) => there(fewer, i)),
    [0, 1, 2, 3, 3, 3],
  );
});

test("an event before every pass leads to the first event of the other run", () => {
  const data = load("toy");
  data.runs[0].events.unshift({ op: "swap", say: "First." });
  assert.equal(there(readTrace(data), 0), 0);
  assert.equal(there(readTrace(data), 1), 0);
});

test("a run with fewer passes: no comparison where it has none", () => {
  const fewer = record("fewer");
  assert.match(say(frame(fewer, 3)), /6 pairs instead of 21/);
  assert.match(say(frame(fewer, 4)), /looks at 7 tokens: 7 pairs\. /);
  assert.deepEqual(frame(fewer, 4).work.bars[1], { name: "pairs", done: 7, total: null, avoided: 0, scale: 21 });
  assert.equal(frame(fewer, 4).work.soFarWithout, null);
});

test("a prompt in chunks in one run: decode 1 stands beside decode 1", () => {
  const chunk = (a, b) =>
    pass("prefill", {
      new: [[a, b]],
      visible: Array.from({ length: b - a }, (_, k) => [[0, a + k + 1]]),
      read: a ? [[0, a]] : [],
      written: [[a, b]],
      kept: [a, b],
    });
  const decode = (part) => pass("decode", { new: [[4, 5]], visible: [[[0, 5]]], ...part }, { pairs: 5 });
  const plain = [
    pass("prefill", { new: [[0, 4]], visible: [1, 2, 3, 4].map((n) => [[0, n]]) }),
    decode({ repeated: [[0, 4]], visible: [1, 2, 3, 4, 5].map((n) => [[0, n]]) }),
  ];
  const cached = [chunk(0, 2), chunk(2, 4), decode({ read: [[0, 4]], written: [[4, 5]], kept: [4, 5] })];
  const made = traceOf(4, ["a", "b", "c", "d", "e"], cached, {
    more: [{ name: "plain", cache: "none", events: plain }],
  });
  assert.equal(frame(made, 2).other.raw, plain[1]);
  assert.equal(there(made, 1), 0);
});

test("rows of another sequence are not dropped from this one", () => {
  const data = load("drop");
  data.runs[0].events[3].sequence = 1;
  const made = readTrace(data);
  const { events } = made.withCache;
  assert.deepEqual([events[3].dropped, rowState(events[3], 0)], [0, "rest"]);
  assert.equal(rowsNote(frame(made, 3)), "5 rows kept");
});

test("as many rows as the prefill wrote are the prefill's only if they are the same rows", () => {
  const data = load("long");
  const { events } = data.runs[0];
  events.splice(3, 0, { op: "drop", sequence: 0, rows: [[0, 1]], why: "window", say: "One row leaves." });
  events[4].parts[0].read = [[1, 5]];
  events[4].counts.rows_read = 4;
  assert.match(say(frame(readTrace(data), 2)), /reads the 4 rows of the prefill/);
  assert.match(say(frame(readTrace(data), 4)), /reads the 4 rows kept so far/);
});
