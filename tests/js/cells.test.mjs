import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AGAIN,
  cellState,
  columnState,
  EARLIER,
  lastPassOf,
  MASKED,
  NOTHING,
  NOW,
  rowCells,
  rowState,
} from "../../helpers/stepper/js/frame.js";
import { decodeWeights, gather, spread, union, weightsOf, without } from "../../helpers/stepper/js/trace.js";
import { frame, pass, record, traceOf } from "./traces.mjs";

const toy = record("toy");
const [TRAINING, PREFILL, DECODE] = [0, 1, 2];
const SIGNS = { [NOTHING]: " ", [NOW]: "o", [AGAIN]: "2", [MASKED]: "x", [EARLIER]: "." };

function grid(run, event, size = 5) {
  return Array.from({ length: size }, (_, i) =>
    Array.from(rowCells(run, event, i, 0, size).states, (s) => SIGNS[s]).join(""),
  );
}

test("training and prefill score the causal triangle and mask the rest, only where the key was there", () => {
  for (const event of [TRAINING, PREFILL])
    for (const run of [toy.withCache, toy.withoutCache])
      assert.deepEqual(grid(run, event), ["oxxx ", "ooxx ", "ooox ", "oooo ", "     "]);
});

test("a cached decode step scores one row and masks nothing; older rows are marked as theirs", () => {
  assert.deepEqual(grid(toy.withCache, DECODE), [".    ", "..   ", "...  ", ".... ", "ooooo"]);
  assert.equal(lastPassOf(toy.withCache, DECODE, 0), "Prefill");
  assert.equal(lastPassOf(toy.withCache, DECODE, 4), null);
});

test("without the cache every row is scored again, with its count, and masked cells come back", () => {
  assert.deepEqual(grid(toy.withoutCache, DECODE), ["2xxxx", "22xxx", "222xx", "2222x", "ooooo"]);
  assert.deepEqual(cellState(toy.withoutCache, DECODE, 3, 0), { state: AGAIN, count: 2 });
  assert.deepEqual(cellState(toy.withoutCache, DECODE, 4, 4), { state: NOW, count: 1 });
});

test("in the long run the triangle counts 8 in the first rows, 276 in all; with the cache 66", () => {
  const long = record("long");
  const last = long.withCache.events.length - 1;
  const sum = (run) =>
    Array.from({ length: 11 }, (_, i) => rowCells(run, last, i, 0, 11).counts.reduce((a, b) => a + b)).reduce(
      (a, b) => a + b,
    );
  assert.equal(sum(long.withoutCache), 276);
  assert.equal(sum(long.withCache), 66);
  assert.equal(cellState(long.withoutCache, last, 0, 0).count, 8);
  assert.equal(cellState(long.withoutCache, last, 4, 0).count, 7);
  assert.equal(lastPassOf(long.withCache, last, 9), "Decode 6");
});

test("rows of K and V: written, read, made and dropped, empty", () => {
  const states = (run, event) => [0, 1, 2, 3, 4].map((i) => rowState(run.events[event], i));
  assert.deepEqual(states(toy.withCache, TRAINING), ["made", "made", "made", "made", "empty"]);
  assert.deepEqual(states(toy.withCache, PREFILL), ["written", "written", "written", "written", "empty"]);
  assert.deepEqual(states(toy.withCache, DECODE), ["read", "read", "read", "read", "written"]);
  assert.deepEqual(states(toy.withoutCache, DECODE), Array(5).fill("made"));
});

test("columns: prompt from the start, the chosen token before it runs, later ones not there yet", () => {
  const states = (event) =>
    [3, 4].map((i) => columnState(toy, toy.withCache, toy.withCache.events[event], i).state);
  assert.deepEqual(states(TRAINING), ["present", "absent"]);
  assert.deepEqual(states(PREFILL), ["present", "emitted"]);
  assert.deepEqual(states(DECODE), ["present", "present"]);
  assert.equal(toy.columns, 5, "<eos> is never run and has no column");
});

test("a sliding window: keys in the cache but out of sight are masked, dropped ones are not there", () => {
  const made = traceOf(
    3,
    ["a", "b", "c", "d", "e"],
    [
      pass("prefill", {
        new: [[0, 3]],
        visible: [[[0, 1]], [[0, 2]], [[1, 3]]],
        written: [[0, 3]],
        kept: [0, 3],
      }),
      {
        op: "drop",
        sequence: 0,
        rows: [[0, 1]],
        why: "window",
        say: "The window moves on: one row is dropped.",
      },
      pass(
        "decode",
        { new: [[3, 4]], visible: [[[2, 4]]], read: [[1, 3]], written: [[3, 4]], kept: [2, 3] },
        { rows_read: 2 },
      ),
    ],
  );
  const run = made.withCache;
  assert.deepEqual(grid(run, 0, 4), ["oxx ", "oox ", "xoo ", "    "]);
  assert.deepEqual(grid(run, 2, 4), [".   ", "..  ", " .. ", " xoo"]);
  assert.deepEqual(
    [0, 1, 2, 3].map((i) => rowState(run.events[1], i)),
    ["dropped", "rest", "rest", "empty"],
  );
  assert.deepEqual(
    [0, 1, 2, 3].map((i) => rowState(run.events[2], i)),
    ["empty", "read", "read", "written"],
  );
});

test("a chunked prefill: earlier chunks are read and their rows stay untouched", () => {
  const made = traceOf(
    4,
    ["a", "b", "c", "d"],
    [
      pass("prefill", { new: [[0, 2]], visible: [[[0, 1]], [[0, 2]]], written: [[0, 2]], kept: [0, 2] }),
      pass(
        "prefill",
        { new: [[2, 4]], visible: [[[0, 3]], [[0, 4]]], read: [[0, 2]], written: [[2, 4]], kept: [2, 4] },
        { rows_read: 2 },
      ),
    ],
  );
  assert.deepEqual(grid(made.withCache, 1, 4), [".   ", "..  ", "ooox", "oooo"]);
  assert.equal(lastPassOf(made.withCache, 1, 1), "Prefill 1");
  assert.equal(made.withCache.events[1].name, "Prefill 2");
});

test("the chosen row is the last live one unless another live one is wanted", () => {
  assert.equal(frame(toy, PREFILL).row, 3);
  assert.equal(frame(toy, PREFILL, { row: 1 }).row, 1);
  assert.equal(frame(toy, DECODE, { row: 1 }).row, 4, "row 1 does not run in a cached decode step");
  assert.equal(frame(toy, DECODE, { row: 1, cached: false }).row, 1);
});

test("weights, contexts and numbers of the chosen row are the recorded ones", () => {
  const shown = frame(toy, DECODE);
  assert.deepEqual(
    shown.weights.map((line) => line.name),
    ["even", "newest", "first", "all"],
  );
  const rounded = shown.weights.map((line) => Array.from(line.weights, (w) => Number(w.toFixed(3))));
  assert.deepEqual(rounded, [
    [0, 0.5, 0, 0.5, 0],
    [0, 0, 0, 0, 1],
    [1, 0, 0, 0, 0],
    [0.2, 0.2, 0.2, 0.2, 0.2],
  ]);
  assert.deepEqual(
    shown.contexts.get(4).map((c) => Number(c.toFixed(6))),
    [12.5, 14, 10, 10],
  );
  assert.deepEqual(
    shown.columns.map((c) => c.v[0]),
    [10, 20, 1, 5, 14],
  );
  const again = frame(toy, DECODE, { cached: false, row: 2 });
  assert.deepEqual(
    again.contexts.get(2).map((c) => Number(c.toFixed(2))),
    [20, 1, 10, 10.33],
    "a repeated row's are looked up",
  );
});

test("layer 2 has its own numbers", () => {
  const two = record("two");
  const shown = frame(two, DECODE, { layer: 1 });
  assert.deepEqual(
    shown.columns.map((c) => Number(c.v[0].toFixed(3))),
    [7.5, 16.25, 10.333, 9.125, 11.625],
  );
  assert.deepEqual(two.layers, [0, 1]);
});

test("work is counted, never computed: the counts of the trace are shown even where a formula would differ", () => {
  const one = (pairs, positions) => [
    pass(
      "prefill",
      { new: [[0, 1]], visible: [[[0, 1]]], written: [[0, 1]], kept: [0, 1] },
      { pairs, positions },
    ),
  ];
  const made = traceOf(1, ["a"], one(7, 3), { more: [{ name: "plain", cache: "none", events: one(19, 8) }] });
  const { bars } = frame(made, 0).work;
  assert.deepEqual(
    bars.map(({ done, total, avoided }) => [done, total, avoided]),
    [
      [3, 8, 5],
      [7, 19, 12],
    ],
  );
});

test("positions so far leave training out", () => {
  const { work } = frame(toy, DECODE);
  assert.deepEqual([work.soFar, work.soFarWithout, work.stored, work.read], [5, 9, 5, 4]);
  assert.equal(frame(toy, TRAINING).work.soFar, 0);
  assert.equal(frame(record("long"), 8, { cached: false }).work.soFar, 60);
});

test("targets stand in the training pass only", () => {
  assert.deepEqual([...frame(toy, TRAINING).targets.values()], ["weather", "is", "so", "nice"]);
  assert.equal(frame(toy, PREFILL).targets.size, 0);
});

test("a trace with one run, without a cache", () => {
  const rules = record("rules");
  assert.equal(rules.withCache, null);
  assert.deepEqual(grid(frame(rules, DECODE).run, DECODE), ["2xxxx", "22xxx", "222xx", "2222x", "ooooo"]);
});

test("ranges", () => {
  assert.deepEqual(
    spread([
      [0, 2],
      [5, 6],
    ]),
    [0, 1, 5],
  );
  assert.deepEqual(gather([0, 1, 5]), [
    [0, 2],
    [5, 6],
  ]);
  assert.deepEqual(union([[0, 2]], [[1, 4]]), [[0, 4]]);
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
