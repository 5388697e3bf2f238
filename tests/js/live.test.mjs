// The live view's facts: lanes at every time, factors, words that are not known, rows that are stale.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ropeFrequencies } from "../../helpers/stepper/js/live/decoder.ts";
import { COUNT } from "../../helpers/stepper/js/live/metadata.ts";
import { Talk } from "../../helpers/stepper/js/live/talk.ts";
import { Words } from "../../helpers/stepper/js/live/words.ts";
import * as writing from "../../helpers/stepper/js/live/writing.ts";

const FREQUENCIES = [
  [5, "3e72d423"],
  [9, "3d99940d"],
  [12, "3d0186e3"],
  [29, "3978a815"],
];

/** A lane of passes that took so many milliseconds: with the cache a token each after the first, or all of them. */
function laneOf(times, prompt, cache) {
  const lane = writing.emptyLane();
  times.forEach((ms, i) => {
    const tokensRun = cache && i ? 1 : prompt + i;
    const phase = i ? "decode" : "prefill";
    writing.addPass(lane, { phase, tokensRun, cached: cache ? prompt + i : 0, ms, said: { token: i } });
  });
  return lane;
}

test("what is done at a time, and a lane that was stopped there", () => {
  const lane = laneOf([30, 2, 3, 1], 5, true);
  const done = [0, 29.9, 30, 31, 32, 35, 36, 99].map((t) => writing.doneAt(lane, t));
  assert.deepEqual(done, [0, 0, 1, 1, 2, 3, 4, 4]);
  assert.equal(writing.timeOf(lane), 36);
  assert.equal(writing.tokensRun(lane), 8);
  assert.equal(writing.tokensRun(lane, 2), 6);
  assert.equal(writing.perToken(lane), 4.5);
  assert.equal(writing.wordTime(lane), 2, "the middle one of the decode steps");
  assert.equal(writing.wordTime(laneOf([30], 5, true)), null);
  assert.equal(writing.wordTime(laneOf([30, 9, 10], 5, true)), 10, "of two the slower");
  assert.equal(writing.wordTime(laneOf([30, 100, 9, 10], 5, true)), 10, "by size, not as text");
  const cut = writing.cutAt(lane, 32.5);
  assert.deepEqual([cut.passes.length, cut.ends, cut.over], [2, [30, 32], true]);
  assert.equal(lane.passes.length, 4);
});

test("the first half of the tokens and as many at the end, the middle one left out", () => {
  assert.deepEqual(writing.halvesOf(laneOf([30, 2, 3, 1], 5, false)), { half: 2, first: 32, last: 4 });
  assert.deepEqual(writing.halvesOf(laneOf([30, 2, 9, 3, 1], 5, false)), { half: 2, first: 32, last: 4 });
});

test("blocks of a race: as wide as a word's wait, as high as the tokens that ran for it", () => {
  const [lane, plain] = [laneOf([50, 10, 10], 5, true), laneOf([50, 60, 80], 5, false)];
  const told = (race, one, cache) =>
    writing
      .blocksAt({ lane, plain, prompt: Array(5), ...race }, one, cache)
      .map(({ left, width, height, now }) => [left, width, height, now].map((x) => Math.round(x)));
  plain.over = lane.over = true;
  assert.deepEqual(told({ t: 190 }, plain, false), [
    [0, 26, 71, 0],
    [26, 32, 86, 0],
    [58, 42, 100, 0],
  ]);
  const tall = told({ t: 190 }, lane, true).map(([, , height]) => height);
  assert.deepEqual(tall, [71, 14, 14], "with the cache one token for each word after the first");
  assert.deepEqual(told({ t: 80 }, plain, false), [
    [0, 26, 71, 0],
    [26, 16, 86, 1],
  ]);
  const early = laneOf([50], 5, false); // the clock is as long as 18 tokens would take, by the 7 that ran
  assert.deepEqual(told({ t: 50, plain: early }, early, false)[0], [0, 28, 71, 0]);
  const stopped = writing.cutAt(plain, 55);
  assert.equal(told({ t: 55, plain: stopped }, stopped, false).length, 1, "none runs after a stop");
});

test("a lane shows its newest words, all of them where they are few", () => {
  assert.deepEqual([0, 28, 40, 41, 50, 51, 100].map(writing.windowAt), [0, 0, 0, 10, 10, 20, 60]);
  for (let done = 0; done <= 100; done++) assert.ok(done - writing.windowAt(done) <= writing.SHOWN);
});

test("without the cache each word runs the whole text so far", () => {
  for (const [prompt, words] of [
    [23, 24],
    [1, 1],
    [7, 100],
  ])
    assert.equal(
      writing.tokensWithout(prompt, words),
      writing.tokensRun(laneOf(Array(words).fill(1), prompt, false)),
    );
});

test("slower by a factor that is easily said, and never faster", () => {
  const factors = [30, 29, 31, 170, 0.001, 9000].map((ms) => writing.slower(ms, 3000));
  assert.deepEqual(factors, [100, 100, 80, 15, 1000, 1]);
});

test("the longer a race, the less it is slowed down", () => {
  const lane = laneOf([34.5, 1.5], 23, true); // 1.5 ms a token
  assert.equal(writing.paceOf(lane, 23, 30, 36000), 20, "1,125 tokens in 34 s");
  assert.equal(writing.paceOf(lane, 23, 100, 36000), 3, "7,250 tokens");
  assert.equal(
    writing.paceOf(laneOf([3450, 150], 23, true), 23, 100, 36000),
    1,
    "a slow machine: never faster",
  );
});

test("what is typed, in words of the model: capitals, accents, marks, and where nothing is meant", () => {
  const vocabulary = ["<eos>", ".", "Mia", "Emil", "Emma", "Bogota", "lake", "is", "The", "the", "Today"];
  const words = new Words(vocabulary);
  const read = (typed) => {
    const { text, changed, dropped, unknown } = words.read(typed);
    assert.ok(words.encode(text), "what is read can be encoded");
    return unknown ? [unknown.word, unknown.at, unknown.begun, unknown.meant] : [text, changed, dropped];
  };
  assert.deepEqual(read("The lake.  Mia<eos>Today"), ["The lake . Mia <eos> Today", [], []]);
  assert.deepEqual(read(""), ["", [], []]);
  assert.deepEqual(read("mia is bogotá"), [
    "Mia is Bogota",
    [
      ["mia", "Mia"],
      ["bogotá", "Bogota"],
    ],
    [],
  ]);
  assert.deepEqual(read("Mia! “lake,” is…<eos>"), ["Mia lake is <eos>", [], ["!", "“", ",", "”", "…"]]);
  assert.deepEqual(read("Mia. THE lake"), ["THE", 5, true, ["The", "the"]], "two are as near");
  assert.deepEqual(read("Mia is em"), ["em", 7, true, ["Emil", "Emma"]]);
  const many = new Words(["ab", "ac", "ad", "ae", "af"]);
  assert.deepEqual(many.suggest("a").meant, ["ab", "ac", "ad", "ae"], "four at most");
  assert.deepEqual(read("is lakr. Zoe"), ["lakr", 3, false, ["lake"]]);
  assert.deepEqual(read("Hello, Mia"), ["Hello", 0, false, []], "nothing that looks like it");
  assert.deepEqual(read("<img src=x>"), ["img", 1, false, []]);
  const { text, left } = words.read("Hello, Mia! The sea is blue.");
  assert.deepEqual([text, left], ["Mia The is .", ["Hello", "sea", "blue"]]);
});

test("a head has found a word that is wanted, before the token itself, by more than half of its weight", () => {
  const found = (weights, texts) => writing.foundBy(weights, texts, new Set(["Mia", "Oslo"]));
  const texts = ["Mia", "swam", "Mia", "by"];
  const { share, ...told } = found([0.3, 0.1, 0.4, 0.2], texts);
  assert.deepEqual(told, { most: "Mia", found: true }, "both of them together");
  assert.ok(Math.abs(share - 0.7) < 1e-9);
  assert.equal(found([0.2, 0.5, 0.2, 0.1], texts).found, false, "most lies on another word");
  assert.equal(found([0.2, 0.2, 0.1, 0.5], texts).found, false);
  assert.equal(found([0.3, 0.3, 0.2, 0.2], texts).found, false, "half is not more than half");
  assert.equal(found([0.2, 0.1, 0.7], texts).found, false, "it looks at itself");
});

test("stale entries: by value, K or V, and a prefix that no layer has touched", () => {
  const k = [
    [0, 0, 0.5, 0],
    [0, 0, 0.2, 0],
  ];
  const v = [
    [0, 0, 0.1, 0],
    [0, 0, 0, 0.3],
  ];
  assert.deepEqual(writing.staleEntries({ k, v }), {
    layers: [
      [0, 0, 0.5, 0],
      [0, 0, 0.2, 0.3],
    ],
    stale: [1, 2],
    kept: 2,
  });
  const same = [[0, 0]];
  assert.deepEqual(writing.staleEntries({ k: same, v: same }), { layers: same, stale: [0], kept: 2 });
});

test("frequencies are Python's, bit by bit", () => {
  const frequencies = ropeFrequencies({ headDim: 64, ropeTheta: 10_000 });
  // rope_frequencies of helpers/model/attention.py; in 64 bits the last of each differs in its last bit
  for (const [i, bits] of FREQUENCIES)
    assert.equal(new Uint32Array(frequencies.buffer)[i].toString(16), bits, `pair ${i}`);
});

test("a count of a file's metadata is a whole number over 0", () => {
  for (const value of [1.5, 0, -1, "4", true, NaN]) assert.equal(COUNT.fits(value), false, String(value));
  assert.ok(COUNT.fits(4));
});

test("bytes of the KV entries that the page keeps: K and V, float32", () => {
  assert.equal(writing.entryBytes({ nLayers: 4, nKvHeads: 2, headDim: 32 }, 44), 88 * 1024);
});

test("each question gets its own passes and its last answer", async () => {
  let hear;
  const sent = [];
  const talk = new Talk((listener) => {
    hear = listener;
    return { ask: (message) => sent.push(message), end() {} };
  });
  const passes = [];
  const first = talk.ask({ do: "write" }, (pass) => passes.push(pass.ms));
  const second = talk.ask({ do: "tokenize", text: "x" });
  talk.stop();
  assert.deepEqual(
    sent.map((one) => [one.do, one.id]),
    [
      ["write", 1],
      ["tokenize", 2],
      ["stop", undefined],
    ],
  );
  hear({ id: 1, op: "pass", ms: 3 });
  hear({ id: 2, op: "failed", say: "no" });
  hear({ id: 1, op: "pass", ms: 4 });
  hear({ id: 1, op: "written" });
  hear({ id: 1, op: "pass", ms: 5 });
  assert.equal((await second).say, "no");
  assert.equal((await first).op, "written");
  assert.deepEqual(passes, [3, 4], "none after the last answer");
});
