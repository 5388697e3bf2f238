// What the walk does not reach: lines that are wanted and not there, scales, damaged rows, addresses, what lights up.
import assert from "node:assert/strict";
import { test } from "node:test";
import { carriesSpaces, runningText } from "../../helpers/stepper/js/format.ts";
import { nearest, readAddress, withValues } from "../../helpers/stepper/js/address.ts";
import { AHEAD, isPicked, MASKED, NOW, rowCells, weightsIn } from "../../helpers/stepper/js/frame.ts";
import { aboutKey, linked, pointedAt } from "../../helpers/stepper/js/links.ts";
import * as trace from "../../helpers/stepper/js/trace.ts";
import { frame, load, record } from "./traces.mjs";

const toy = record("toy");
const [TRAINING, PREFILL, DECODE] = [0, 1, 2];

test("the chosen line is the last live one unless another one that has run is wanted", () => {
  assert.equal(frame(toy, PREFILL, { row: 4 }).row, 3, "it has not run yet");
  assert.equal(frame(toy, DECODE, { row: 1 }).row, 1, "it ran in the prefill");
  assert.equal(frame(toy, TRAINING, { row: 4 }).row, 3);
});

test("a head that the layer has not is the mean, and a mean of rows that are not all there is none", () => {
  const layers = record("layers"); // heads 0 to 3, 1 and 3, 3 and 0
  assert.deepEqual(
    [0, 2, 3].map((layer) => frame(layers, 1, { layer, head: 1 }).head),
    [1, 1, null],
  );
  const data = load("two");
  data.weights.rows["0.3.0.1"] = data.weights.rows["0.2.0.1"]; // a weight too few
  const damaged = trace.readTrace(data);
  const lines = [1, null, 0].map((head) => frame(damaged, PREFILL, { head }));
  const looks = ({ record, run, event, row, layer, head }) => weightsIn(record, run, event, row, layer, head);
  assert.deepEqual(
    lines.map((shown) => looks(shown).weights?.length),
    [undefined, undefined, 4],
  );
  assert.deepEqual([isPicked(0.05, 1), isPicked(0.0124, 4), isPicked(0.0125, 4)], [true, false, true]);
});

test("the mean of many heads has no contexts", () => {
  const many = frame(record("heads"), 1);
  assert.deepEqual([many.heads, many.contexts.size], [[], 0]);
});

test("cells of a part of the columns are those of the whole row", () => {
  for (const cached of [true, false]) {
    const { run } = frame(record("n24"), 2, { cached });
    const whole = rowCells(run, 2, 20, 0, 24);
    const part = rowCells(run, 2, 20, 5, 22);
    assert.deepEqual([part.states, part.counts], [whole.states.slice(5, 22), whole.counts.slice(5, 22)]);
  }
});

test("what stands to the right of a line would be seen without the mask, and what a window hides would not", () => {
  const data = load("toy");
  data.runs[0].passes[PREFILL].parts[0].visible[2] = [[1, 3]];
  const { run } = frame(trace.readTrace(data), PREFILL);
  const row = (ahead) => [...rowCells(run, PREFILL, 2, 0, 5, ahead).states];
  assert.deepEqual(
    [row(false), row(true)],
    [
      [MASKED, NOW, NOW, MASKED, 0],
      [MASKED, NOW, NOW, AHEAD, 0],
    ],
  );
  assert.deepEqual(
    [...rowCells(run, PREFILL, 2, 2, 4, true).states],
    [NOW, AHEAD],
    "of a part of the columns",
  );
});

test("work is counted, never computed, and each bar has the scale of its largest pass", () => {
  const data = load("toy");
  Object.assign(data.runs[0].passes[1].counts, { pairs: 7, positions: 3 });
  Object.assign(data.runs[1].passes[1].counts, { pairs: 19, positions: 8 });
  assert.deepEqual(frame(trace.readTrace(data), PREFILL).work.bars, [
    { name: "positions", done: 3, total: 8, avoided: 5, scale: 8 },
    { name: "pairs", done: 7, total: 19, avoided: 12, scale: 19 },
  ]);
});

test("ranges and weights", () => {
  assert.deepEqual(trace.gather([0, 1, 5]), [
    [0, 2],
    [5, 6],
  ]);
  assert.deepEqual(trace.union([[0, 2]], [[1, 4]]), [[0, 4]]);
  const weights = Array.from(trace.decodeWeights("//8AAP9/"), (w) => Number(w.toFixed(2)));
  assert.deepEqual(weights, [1, 0, 0.5]);
  assert.equal(trace.weightsOf(toy, 0, 7, 0), null);
});

test("words that carry their spaces stand as the text has them, others apart", () => {
  const all = (...texts) => carriesSpaces(texts.map((text) => ({ text })));
  assert.deepEqual(
    [all("To", "day", " is"), all("Today", "is"), all(" ", "\n"), all("so ", "x")],
    [true, false, false, true],
  );
  const running = (...texts) =>
    runningText(texts.map((text) => ({ text }))).map(({ text, blank }) => [text, blank]);
  assert.deepEqual(running("<0xC3>", "<0xA9>"), [
    ["", true],
    ["é", true],
  ]);
  assert.deepEqual(running("in", "Oslo", "."), [
    ["in", true],
    ["Oslo", true],
    [".", false],
  ]);
  assert.deepEqual(running("To", " <0xF0>", "<0x9F><0x98>", "<0x8A>", " <0xC3>"), [
    ["To", false],
    ["", false],
    ["", false],
    ["😊", true],
    ["<0xC3>", true],
  ]);
  assert.deepEqual(running("To", "day", " is", "."), [
    ["To", false],
    ["day", false],
    ["is", true],
    [".", false],
  ]);
});

test("a weight lights its V, its term and the context it goes into; a word its weights in every head", () => {
  const shown = frame(toy, DECODE, { row: 4 });
  const weight = ["h1", "k1", "v1", "c4.1", "w0.1", "w0.1s", "w0.1d", "t0.1", "ctx4.0", "w0", "b4"];
  for (const key of ["w0.1", "w0.1s", "w0.1d", "t0.1"])
    assert.deepEqual(linked(aboutKey(key, shown), shown), weight);
  const word = linked(aboutKey("v1", shown), shown);
  for (const head of [0, 1, 2, 3]) assert.ok(word.includes(`w${head}.1s`) && word.includes(`t${head}.1`));
  assert.ok(!word.includes("ctx4.0"));
  assert.deepEqual(aboutKey("c2.1", shown), { row: 2, column: 1, line: null });
  assert.deepEqual(
    linked(aboutKey("c2.1", shown), shown),
    ["h1", "k1", "v1", "c2.1", "b2"],
    "not the chosen line",
  );
  assert.deepEqual(linked(aboutKey("ctx4.2", shown), shown), ["ctx4.2", "w2", "b4"]);
  assert.deepEqual(linked(aboutKey("sum2", shown), shown), ["ctx4.2", "w2", "b4"]);
  for (const key of ["drawer", "n0", "w2", "t2", "noteK", "bandk", "", "ctx", "arrow", "h"])
    assert.equal(aboutKey(key, shown), null, key);
});

test("what is pointed at in words: whose weight, of which head, and what it adds", () => {
  const say = (shown, key) => pointedAt(aboutKey(key, shown), shown).replaceAll(/[\u2068\u2069]/g, "");
  const shown = frame(toy, DECODE);
  assert.equal(
    say(shown, "w0.1s"),
    "nice attends to weather with weight 0.5 (even); it adds 0.5 × 20 = 10 to the context",
  );
  assert.equal(say(shown, "c2.0"), "is attends to Today with weight 0.33 (mean)");
  assert.equal(
    say(frame(toy, DECODE, { head: 2 }), "c4.0").slice(0, 44),
    "nice attends to Today with weight 1 (first);",
  );
  assert.deepEqual([say(shown, "ctx4.0"), say(frame(toy, PREFILL), "c1.3")], ["", ""]);
  const two = frame(record("two"), DECODE, { layer: 1, head: 3 });
  assert.match(
    say(two, "v2"),
    /^nice attends to is with weight 0\.2 \(all\); it adds 0\.2 × 10\.33 = 2\.07 to/,
  );
});

test("addresses: names and values, whole numbers, and the nearest there is", () => {
  assert.deepEqual(
    [...readAddress("#pass=3&cache=off&pass=4")],
    [
      ["pass", "3"],
      ["cache", "off"],
    ],
  );
  assert.equal(withValues("#pass=3&a=1%2C2", { pass: null, layer: 2 }), "#a=1,2&layer=2");
  assert.equal(withValues("#pass=3", { pass: null }), "");
  const two = "#pass=3&view2.pass=5&at=view2";
  assert.deepEqual([...readAddress(two, "view2.")], [["pass", "5"]], "a view of which there are several");
  assert.equal(withValues(two, { pass: null, layer: 1 }, "view2."), "#pass=3&at=view2&view2.layer=1");
  for (const [text, value, fits] of [
    [undefined, 2, true],
    ["3", 3, true],
    ["0", 1, false],
    ["-7", 1, false],
    ["9", 5, false],
    ["", 2, false],
    ["1.5", 2, false],
    ["1e3", 2, false],
    ["3x", 2, false],
    ["120", 5, false],
    ["9".repeat(99), 2, false],
  ])
    assert.deepEqual(nearest(text, 1, 5, 2), { value, fits }, text);
  assert.deepEqual(nearest("120", 1, 300, 2), { value: 120, fits: true });
});
