import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as format from "../../helpers/stepper/js/format.ts";
import { readTrace } from "../../helpers/stepper/js/trace.ts";
import {
  aheadSentence,
  describe,
  drawerName,
  keyTexts,
  ledgerOf,
  plainSentence,
  sentenceOf,
  throughLayers,
} from "../../helpers/stepper/js/words.ts";
import { frame, load, record } from "./traces.mjs";

const toy = record("toy");
const say = (shown) => plainSentence(sentenceOf(shown));

test("the sentences of the toy", () => {
  assert.equal(
    say(frame(toy, 0)),
    "Training, for reference. All 4 tokens are processed together, as in prefill: 10 pairs. Every row has a target, the token that comes next. Nothing is kept.",
  );
  const prefill =
    "All 4 prompt tokens are processed together. Each makes its own KV entry, and attends to itself and the tokens before it: 10 pairs. The last row gives the first new word, nice.";
  assert.equal(say(frame(toy, 1)), prefill);
  assert.equal(say(frame(toy, 1, { cached: false })), `${prefill} K and V are dropped after the pass.`);
  assert.equal(
    say(frame(toy, 2)),
    "Only nice runs. It adds one KV entry, reads the 4 entries of the prefill, and attends to 5 tokens: 5 pairs instead of 15. The word that comes out is <eos>: stop.",
  );
  assert.equal(
    say(frame(toy, 2, { cached: false })),
    "Without the cache all 5 tokens are processed to get the one new KV entry: 15 pairs, 10 of them for the second time. The word that comes out is the same, <eos>: stop.",
  );
  const alone = load("toy");
  alone.runs = [alone.runs[1]]; // there is no other run whose word it could be the same as
  assert.match(say(frame(readTrace(alone), 2)), /The word that comes out is <eos>: stop\.$/);
});

test("sentences of longer and shorter runs", () => {
  const long = record("long run");
  assert.match(
    say(frame(long, 3)),
    /reads the 5 entries kept so far, and attends to 6 tokens: 6 pairs instead of 21\. The word that comes out is nice\.$/,
  );
  assert.match(say(frame(long, 3, { cached: false })), /15 of them scored before, up to twice\. /);
  assert.match(say(frame(long, 8)), /The word that comes out is nice, the last that was asked for\.$/);
  assert.match(say(frame(long, 8, { cached: false })), /66 pairs, 55 of them scored before, up to 7 times/);
  const one = load("one");
  one.sequences[0].tokens[1].text = "nice";
  assert.match(
    say(frame(readTrace(one), 0)),
    /^The one prompt token is processed\. It makes its KV entry and attends to itself: 1 pair\. .*, the only one that was/,
  );
});

test("how many layers an entry is counted in: none is named for one, and where they differ the one that is shown", () => {
  const [two, kinds] = [record("two"), record("kinds")];
  assert.match(say(frame(two, 1)), /Each makes its own KV entry in each layer, and/);
  assert.match(say(frame(two, 2)), /adds one KV entry in each layer, reads/);
  assert.match(say(frame(two, 2, { cached: false })), /the one new KV entry in each layer: /);
  assert.match(say(frame(kinds, 1)), /adds one KV entry in this layer, reads/);
});

test("a layer that shares the KV entries of an earlier one makes none", () => {
  const kinds = record("kinds");
  assert.match(
    say(frame(kinds, 0, { layer: 4 })),
    /This layer makes no KV entry: each token attends to its own entry and those before it in an earlier layer/,
  );
  const decode = frame(kinds, 1, { layer: 4 });
  assert.match(
    say(decode),
    /This layer adds no KV entry: it attends to 6 entries of an earlier layer: 6 pairs/,
  );
  assert.equal(ledgerOf(decode).text, "no KV entries of its own: those of an earlier layer are read");
});

test("without the mask: how many pairs more there would be, and what would go wrong", () => {
  const ahead = (shown, event, more = {}) => aheadSentence(frame(shown, event, { ahead: true, ...more }));
  assert.match(ahead(toy, 0), /^Without the mask, 6 more pairs: each row but the last would see the word/);
  assert.match(ahead(toy, 1), /^Without the mask, 6 more pairs: tokens would attend to those after them\./);
  assert.match(ahead(toy, 2), /^Without the mask nothing changes here: the newest token is the last/);
  assert.match(ahead(toy, 2, { cached: false }), /^Without the mask, 10 more pairs: tokens would/);
  assert.equal(aheadSentence(frame(toy, 0)), "");
  const words = describe(frame(toy, 1, { ahead: true }), true)[2].replaceAll(/[\u2068\u2069]/g, "");
  assert.equal(
    words,
    "weather (2) attends to Today (1), weather (2); without the mask it would also see: is (3), so (4).",
  );
});

test("the ledger says when its numbers do not satisfy it", () => {
  assert.deepEqual(ledgerOf(frame(toy, 1)), { holds: true, text: "4 cached = 4 prompt + 1 emitted − 1" });
  const data = load("toy");
  data.runs[0].passes[1].parts[0].kept = [0, 3];
  assert.deepEqual(ledgerOf(frame(readTrace(data), 1)), {
    holds: false,
    text: "3 cached, not 4 prompt + 1 emitted − 1 (4)",
  });
});

test("the last layer alone gives the next word", () => {
  const said = [0, 1].map((layer) => throughLayers(frame(record("two"), 2, { layer })));
  assert.deepEqual(said, [", after layer 2", ""]);
});

test("K's contents", () => {
  assert.deepEqual(keyTexts([0, 5]), ["0", "5"]);
  assert.deepEqual(keyTexts([0, 5, 1]), [], "of more than two numbers, none");
});

test("what keeps KV entries or a state has its name, with the kind of layer where there are several", () => {
  const names = [0, 2].map((layer) => drawerName(frame(record("kinds"), 1, { layer })));
  assert.deepEqual(names, ["KV cache · full attention", "no KV entries · linear attention"]);
  assert.deepEqual(
    [0, 1].map((event) => drawerName(frame(toy, event))),
    ["training keeps no cache", "KV cache"],
  );
});

test("a token of 24 characters is whole in a sentence, a longer one is cut", () => {
  const said = [24, 25].map((n) => plainSentence(["the ", { token: "x".repeat(n) }]));
  assert.deepEqual(said, [`the ${"x".repeat(24)}`, `the ${"x".repeat(23)}…`]);
});

test("the pass in words: what stands beside the grid", () => {
  const beside = describe(frame(toy, 2), true).slice(-3);
  assert.deepEqual(
    beside.map((line) => line.replaceAll(/[\u2068\u2069]/g, "")),
    [
      "Contexts of nice (5): even 12.5, newest 14, first 10, all 10.",
      "Next word (greedy): nice 13.4%, warm 4.9%, delicious 0.4%, <eos> 81.2%. Chosen: <eos>.",
      "Ledger: 5 cached = 4 prompt + 2 emitted − 1.",
    ],
  );
  assert.match(describe(frame(toy, 0), false).at(-1), /^Targets, row by row: .*weather.*nice/);
  const training = frame(toy, 0);
  for (const [many, rest] of [
    [12, ""],
    [13, ", …"],
  ]) {
    const targets = new Map(Array.from({ length: many }, (_, i) => [i, "so"]));
    const told = describe({ ...training, targets }, false).find((line) => line.startsWith("Targets"));
    assert.equal(told.match(/(, …)?\.$/)[0], `${rest}.`, `${many} targets`);
  }
  const looks = (event) => describe(frame(record("n64"), event, { cached: false }), false);
  const told = (event) => looks(event).filter((line) => / \(\d+\) attends to /.test(line)).length;
  assert.deepEqual([9, 10, 61].map(told), [12, 2, 2], "more than a dozen rows are summed up");
});

test("numbers, texts and templates: the same cases as in Python", () => {
  const cases = JSON.parse(readFileSync(new URL("../texts.json", import.meta.url), "utf8"));
  const all = (name, write) =>
    assert.deepEqual(
      cases[name].map(([what]) => write(what)),
      cases[name].map(([, said]) => said),
    );
  all("texts", format.visibleText);
  all("clipped", (text) => format.clippedText(text, 10));
  all("numbers", format.formatNumber);
  all("percents", format.formatPercent);
  for (const [template, values, said] of cases.filled) assert.equal(format.fillText(template, values), said);
  assert.equal(format.isolatedText("a\u2069\u202e"), "\u2068aU+2069U+202E\u2069");
});

test("passes are named by their phase, and the first decode step with its number", () => {
  const { events } = record("long run").withCache;
  assert.deepEqual(
    events.slice(0, 4).map(({ name, short }) => [name, short]),
    [
      ["Training", "Training"],
      ["Prefill", "Prefill"],
      ["Decode 1", "Decode 1"],
      ["Decode 2", "2"],
    ],
  );
});

test("a pass that scores more pairs again than a call takes arguments", () => {
  const raw = load("toy");
  const pass = (phase, n, fresh) => ({
    ...{
      phase,
      shapes: [],
      counts: { positions: n, kv_rows: n, rows_read: 0, pairs: 1, products: 1 },
    },
    parts: [
      {
        ...{ sequence: 0, new: [[fresh, n]], repeated: fresh ? [[0, fresh]] : [], read: [], written: [] },
        ...{
          kept: [0, 0],
          target: null,
          contexts: {},
          visible: [...Array(n).keys()].map((i) => [[0, i + 1]]),
        },
        out: [{ query: n - 1, chosen: n, how: "greedy", top: [["a", 1, 1]] }],
      },
    ],
  });
  const tokens = [...Array(514).keys()].map((i) => ({
    text: "a",
    id: null,
    position: i + 1,
    origin: i < 512 ? "prompt" : "generated",
  }));
  raw.sequences = [{ prompt: 512, tokens }];
  raw.runs = [
    { name: "uncached", cache: "none", passes: [pass("prefill", 512, 0), pass("decode", 513, 512)] },
  ];
  Object.assign(raw, { weights: { ...raw.weights, rows: {} }, values: null });
  assert.match(say(frame(readTrace(raw), 1)), /131,328/);
});
