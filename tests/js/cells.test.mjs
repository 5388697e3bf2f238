// States and numbers of a pass that a reader of these tests can check by eye; walk.test.mjs checks them all.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AGAIN,
  columnState,
  EARLIER,
  lastPassOf,
  MASKED,
  NOTHING,
  NOW,
  rowCells,
  rowState,
} from "../../helpers/stepper/js/frame.js";
import {
  decodeWeights,
  gather,
  readTrace,
  spread,
  union,
  weightsOf,
  without,
} from "../../helpers/stepper/js/trace.js";
import { frame, load, record } from "./traces.mjs";

const toy = record("toy");
const [TRAINING, PREFILL, DECODE] = [0, 1, 2];
const SIGNS = { [NOTHING]: " ", [NOW]: "o", [AGAIN]: "2", [MASKED]: "x", [EARLIER]: "." };

function grid(run, event, size = 5) {
  return Array.from({ length: size }, (_, i) =>
    Array.from(rowCells(run, event, i, 0, size).states, (s) => SIGNS[s]).join(""),
  );
}

test("training and prefill score the triangle, a cached step one row, without the cache all again", () => {
  for (const event of [TRAINING, PREFILL])
    for (const run of [toy.withCache, toy.withoutCache])
      assert.deepEqual(grid(run, event), ["oxxx ", "ooxx ", "ooox ", "oooo ", "     "]);
  assert.deepEqual(grid(toy.withCache, DECODE), [".    ", "..   ", "...  ", ".... ", "ooooo"]);
  assert.deepEqual(grid(toy.withoutCache, DECODE), ["2xxxx", "22xxx", "222xx", "2222x", "ooooo"]);
  assert.deepEqual(grid(record("rules").runs[0], DECODE), grid(toy.withoutCache, DECODE));
  assert.equal(lastPassOf(toy.withCache, DECODE, 4), null);
});

test("in the long run the triangle counts 8 in the first rows, 276 in all; with the cache 66", () => {
  const long = record("long run");
  const counts = (run) => Array.from({ length: 11 }, (_, i) => [...rowCells(run, 8, i, 0, 11).counts]);
  const sum = (run) =>
    counts(run)
      .flat()
      .reduce((a, b) => a + b);
  assert.deepEqual([sum(long.withoutCache), sum(long.withCache)], [276, 66]);
  assert.deepEqual([counts(long.withoutCache)[0][0], counts(long.withoutCache)[4][0]], [8, 7]);
});

test("columns: prompt from the start, the chosen token before it runs, later ones not there yet", () => {
  const states = (event) =>
    [3, 4].map((i) => columnState(toy, toy.withCache, toy.withCache.events[event], i).state);
  assert.deepEqual(
    [states(TRAINING), states(PREFILL), states(DECODE)],
    [
      ["present", "absent"],
      ["present", "emitted"],
      ["present", "present"],
    ],
  );
  assert.equal(toy.columns, 5, "<eos> is never run and has no column");
});

test("the chosen row is the last live one unless another live one is wanted", () => {
  assert.equal(frame(toy, PREFILL).row, 3);
  assert.equal(frame(toy, PREFILL, { row: 1 }).row, 1);
  assert.equal(frame(toy, DECODE, { row: 1 }).row, 4, "row 1 does not run in a cached decode step");
  assert.equal(frame(toy, DECODE, { row: 1, cached: false }).row, 1);
});

test("work is counted, never computed, and each bar has the scale of its largest pass", () => {
  const data = load("toy");
  Object.assign(data.runs[0].events[1].counts, { pairs: 7, positions: 3 });
  Object.assign(data.runs[1].events[1].counts, { pairs: 19, positions: 8 });
  assert.deepEqual(frame(readTrace(data), PREFILL).work.bars, [
    { name: "positions", done: 3, total: 8, avoided: 5, scale: 8 },
    { name: "pairs", done: 7, total: 19, avoided: 12, scale: 19 },
  ]);
});

test("rows leave in events of their own, and only from their sequence", () => {
  const window = record("window"); // prefill, drop, decode 1 and 2, drop, decode 3 and 4
  const states = (run, event) => [0, 1, 2, 3].map((i) => rowState(run.events[event], i));
  assert.deepEqual(states(window.withCache, 1), ["dropped", "dropped", "rest", "rest"]);
  assert.deepEqual(states(window.withCache, 2), ["empty", "empty", "read", "read"]);
  assert.deepEqual(
    window.withCache.events.map((e) => e.dropped),
    [0, 2, 2, 2, 3, 3, 3],
  );
  const data = load("window");
  data.runs[0].events[1].sequence = 1;
  assert.deepEqual(states(readTrace(data).withCache, 1), ["rest", "rest", "rest", "rest"]);
});

test("ranges and weights", () => {
  const [a, b] = [
    [0, 2],
    [5, 6],
  ];
  assert.deepEqual(spread([a, b]), [0, 1, 5]);
  assert.deepEqual(gather([0, 1, 5]), [a, b]);
  assert.deepEqual(union([a], [[1, 4]]), [[0, 4]]);
  assert.deepEqual(without([[0, 4]], [[1, 2]]), [
    [0, 1],
    [2, 4],
  ]);
  assert.deepEqual(
    Array.from(decodeWeights("//8AAP9/")).map((w) => Number(w.toFixed(2))),
    [1, 0, 0.5],
  );
  assert.equal(weightsOf(toy, 0, 7, 0), null);
});
