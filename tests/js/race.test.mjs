// The race at every moment, held against sums over the JSON of its trace.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as racing from "../../helpers/stepper/js/race.ts";
import { readTrace } from "../../helpers/stepper/js/trace.ts";
import { load } from "./traces.mjs";

const DIARY = JSON.parse(readFileSync(new URL("../../helpers/recording/diary.json", import.meta.url)));
const NAMES = ["toy", "two", "long run", "layers", "one"];
const {
  laneAt,
  momentAfter,
  momentsOf,
  paceAt,
  raceOf,
  raceSentence,
  stageOf,
  stopsOf,
  timeFrom,
  wordState,
} = racing;
const diary = raceOf(readTrace(DIARY));

/** What a run has done after each of its passes, the start among them. */
function boundaries(run) {
  const rows = [{ passes: 0, positions: 0, words: [] }];
  for (const event of run.passes) {
    if (event.phase === "training") continue;
    const last = rows.at(-1);
    rows.push({
      passes: last.passes + 1,
      positions: last.positions + event.counts.positions,
      words: [...last.words, ...event.parts[0].out.map((out) => out.chosen)],
    });
  }
  return rows;
}

for (const name of [...NAMES, "diary"])
  test(`${name}: each lane at each boundary and between`, () => {
    const data = name === "diary" ? DIARY : load(name);
    const race = raceOf(readTrace(data));
    const plain = data.runs.find((run) => run.cache === "none");
    const runs = [data.runs.find((run) => run !== plain), plain];
    assert.deepEqual(
      momentsOf(race),
      [...new Set(momentsOf(race))].sort((a, b) => a - b),
    );
    race.lanes.forEach((lane, k) => {
      const rows = boundaries(runs[k]);
      assert.deepEqual(lane.words, rows.at(-1).words);
      rows.forEach((row, i) => {
        const { words, ...want } = row;
        const at = laneAt(lane, row.positions);
        assert.deepEqual(at, { ...want, words: words.length, share: 0 });
        assert.ok(momentsOf(race).includes(row.positions));
        const next = rows[i + 1];
        if (!next) return;
        const between = laneAt(lane, (row.positions + 3 * next.positions) / 4);
        assert.deepEqual([between.passes, between.words, between.share], [row.passes, words.length, 0.75]);
        assert.equal(laneAt(lane, next.positions - 1e-12).passes, next.passes, "a sum of fractions");
      });
      assert.deepEqual(laneAt(lane, race.clock), laneAt(lane, rows.at(-1).positions));
    });
    assert.equal(race.clock, Math.max(...runs.map((run) => boundaries(run).at(-1).positions)));
    assert.deepEqual([stageOf(race, 0), stageOf(race, race.clock)], ["start", "done"]);
    assert.ok(!/undefined|NaN|\{/.test(["pause", "drip", "ahead", "done"].map((s) => raceSentence(race, s))));
  });

test("a time of an address, the next moment by key, and words that are out, next or to come", () => {
  const race = raceOf(readTrace(load("toy"))); // passes end at 4, 5 and 4, 9
  assert.deepEqual([undefined, "3", "2.5", "-1", ".5", "1e3", "x"].map(timeFrom), [
    0,
    3,
    2.5,
    -1,
    0.5,
    NaN,
    NaN,
  ]);
  const after = (by) => [0, 4, 4.5, 5, 9].map((t) => momentAfter(race, t, by));
  assert.deepEqual(after(1), [4, 5, 5, 9, 9]);
  assert.deepEqual(after(-1), [0, 0, 4, 4, 5]);
  assert.deepEqual(
    [0, 1, 2].map((n) => wordState(n, 1, 3)),
    ["out", "next", ""],
  );
  assert.equal(wordState(0, 0, 0), "", "nothing runs yet");
});

test("what is said, and when", () => {
  const at = (t) => raceSentence(diary, stageOf(diary, t));
  assert.equal(at(0.1), "The pause: both process all 23 prompt tokens. No word is out yet.");
  assert.equal(at(22.9), at(0.1));
  assert.match(at(23), /^The drip: .* processes 1 token\. Without it the next processes 24: /);
  assert.equal(at(45.9), at(23));
  assert.match(
    at(46),
    /^With the cache all 24 tokens were out after 46 tokens processed\. Without it 1 of 24 was out at that moment: /,
  );
  assert.equal(at(827.9), at(46));
  assert.equal(
    at(828),
    "The same 24 tokens, for 46 tokens processed instead of 828. Without the cache 782 of the 828 had been processed before.",
  );
});

test("the clock: 12 seconds at speed 1 however long the run, a slow start, stops where nothing moves", () => {
  for (const race of [diary, raceOf(readTrace(load("n64")))]) {
    assert.equal(race.clock / paceAt(race, 0, 1), 12);
    assert.equal(race.clock / paceAt(race, 0, 4), 3);
    const [{ end }] = race.lanes;
    assert.ok(end / paceAt(race, 0, 0) >= 4.499);
    assert.equal(paceAt(race, end, 0), paceAt(race, end, 1));
  }
  assert.deepEqual(stopsOf(diary), [23, 46, 207, 414, 621, 828]);
  const even = raceOf(readTrace(load("one"))); // one pass: the cache saves nothing
  assert.equal(paceAt(even, 0, 0), even.clock / 12);
});
