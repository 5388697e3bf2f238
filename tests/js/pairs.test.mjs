// Two runs laid side by side: the same passes belong together, whatever else happened between them in one run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { counterpart, readTrace } from "../../helpers/stepper/js/trace.js";
import { ledgerOf, plainSentence, rowsNote, sentenceOf } from "../../helpers/stepper/js/words.js";
import { frame, load, record } from "./traces.mjs";

const say = (shown) => plainSentence(sentenceOf(shown));
const bars = (shown) => shown.work.bars.map(({ done, total, avoided }) => [done, total, avoided]);
const there = (made, cached = true) => {
  const runs = cached ? [made.withCache, made.withoutCache] : [made.withoutCache, made.withCache];
  return runs[0].events.map((event) => counterpart(...runs, event).index);
};

test("an event in one run only: passes keep their pairs, and it is drawn as its sentence", () => {
  const swap = record("swap"); // an event between prefill and decode 1 of the cached run
  assert.equal(say(frame(swap, 2)), "The rows <b>move</b>.");
  assert.equal(rowsNote(frame(swap, 2)), "4 rows kept");
  assert.match(say(frame(swap, 3)), /^Only nice runs.* 5 pairs instead of 15\. /);
  assert.match(say(frame(swap, 2, { cached: false })), /^Without the cache .* the same, <eos>: stop\.$/);
  assert.deepEqual(bars(frame(swap, 3)), [
    [1, 5, 4],
    [5, 15, 10],
  ]);
  assert.deepEqual(
    [there(swap), there(swap, false)],
    [
      [0, 1, 1, 2],
      [0, 1, 3],
    ],
  );
});

test("a drop: its rows are dropped, nothing is compared, the work so far stays", () => {
  const shown = frame(record("drop"), 3); // after the last pass
  assert.equal(say(shown), "Two rows leave.");
  assert.equal(rowsNote(shown), "2 rows dropped: evicted");
  assert.equal(shown.other, null);
  assert.deepEqual(bars(shown), [
    [0, null, 0],
    [0, null, 0],
  ]);
  assert.deepEqual([shown.work.stored, shown.work.soFar, shown.work.soFarWithout], [3, 5, 9]);
  assert.equal(ledgerOf(shown).text, "3 cached, not 4 prompt + 2 emitted − 1: 2 rows dropped");
});

test("the other run is entered at the same pass, else at the last before it that both have", () => {
  const fewer = record("fewer"); // training, prefill, decode 1 to 4; without the cache to 2
  assert.deepEqual(there(fewer), [0, 1, 2, 3, 3, 3]);
  assert.match(say(frame(fewer, 3)), /6 pairs instead of 21/);
  assert.match(say(frame(fewer, 4)), /looks at 7 tokens: 7 pairs\. /);
  assert.deepEqual(frame(fewer, 4).work.bars[1], {
    name: "pairs",
    done: 7,
    total: null,
    avoided: 0,
    scale: 21,
  });
  assert.equal(frame(fewer, 4).work.soFarWithout, null);
  const data = load("toy");
  data.runs[0].events.unshift({ op: "swap", say: "First." });
  assert.deepEqual(there(readTrace(data)).slice(0, 2), [0, 0], "before every pass");
});

test("a prompt in chunks in one run: decode 1 stands beside decode 1", () => {
  const data = load("chunks");
  data.runs[1].events.splice(0, 2);
  assert.equal(frame(readTrace(data), 3).other.raw, data.runs[1].events[1]);
});

test("as many rows as the prefill wrote are the prefill's only if they are the same rows", () => {
  const data = load("long run");
  const { events } = data.runs[0];
  events.splice(3, 0, { op: "drop", sequence: 0, rows: [[0, 1]], why: "window", say: "One row leaves." });
  events[4].parts[0].read = [[1, 5]];
  events[4].counts.rows_read = 4;
  assert.match(say(frame(readTrace(data), 2)), /reads the 4 rows of the prefill/);
  assert.match(say(frame(readTrace(data), 4)), /reads the 4 rows kept so far/);
});
