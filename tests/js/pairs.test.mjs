// Two runs laid side by side: the same passes belong together, whatever else happened between them in one run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { counterpart, readTrace } from "../../helpers/stepper/js/trace.js";
import { plainSentence, sentenceOf } from "../../helpers/stepper/js/words.js";
import { frame, load, record } from "./traces.mjs";

const there = (made, cached = true) => {
  const runs = cached ? [made.withCache, made.withoutCache] : [made.withoutCache, made.withCache];
  return runs[0].events.map((event) => counterpart(...runs, event).index);
};

test("the other run is entered at the same pass, else at the last before it that both have", () => {
  const drop = { op: "drop", sequence: 0, rows: [], why: "", say: "No row leaves." };
  const data = load("toy");
  data.runs[0].events.splice(2, 0, drop); // between prefill and decode 1 of the cached run
  assert.deepEqual(there(readTrace(data)), [0, 1, 1, 2]);
  assert.deepEqual(there(readTrace(data), false), [0, 1, 3]);
  assert.deepEqual(there(record("fewer")), [0, 1, 2, 3, 3, 3]); // decode 1 to 4; without the cache to 2
  data.runs[0].events.unshift(drop);
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
  const say = (event) => plainSentence(sentenceOf(frame(readTrace(data), event)));
  assert.match(say(2), /reads the 4 rows of the prefill/);
  assert.match(say(4), /reads the 4 rows kept so far/);
});
