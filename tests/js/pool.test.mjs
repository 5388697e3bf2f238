// The pool at every step, held against what Python says of the same traces; tests/test_pool.py holds that to the books.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as pools from "../../helpers/stepper/js/pool.js";
import { load } from "./traces.mjs";

const NAMES = ["six", "chunks", "idle", "numbers", "hostile", "many"];
const WIDTHS = [262, 360, 940, 1164];

for (const name of NAMES)
  test(`${name}: each step as Python has it`, () => {
    const { trace, expected } = load(`pool_${name}`);
    const pool = pools.poolOf(trace);
    assert.deepEqual(pool.marks, expected.marks);
    assert.deepEqual(pool.stays, expected.stays);
    const every = Math.ceil(trace.steps.length / expected.steps.length);
    expected.steps.forEach((want, i) => {
      const n = i * every;
      assert.deepEqual(pools.momentAt(pool, n).pages, want.pages);
      assert.equal(pools.poolSentence(pool, n), want.sentence);
      for (const [what, [now, soFar]] of Object.entries(want.counts)) {
        const counted = pools.countAt(pool, n, what);
        assert.deepEqual([counted.now, counted.soFar], [now, soFar]);
      }
    });
  });

test("who is pointed at lights up, in the order of the text", () => {
  const pool = pools.poolOf(load("pool_six").trace);
  const seen = new Set();
  pool.steps.forEach((step, n) => {
    const moment = pools.momentAt(pool, n);
    for (const { request, table } of step.running) {
      const { requests, places } = pools.litBy(moment, { request });
      assert.deepEqual([...requests], [request]);
      assert.deepEqual(
        table.map((page) => places.get(page)),
        table.map((_, i) => i + 1),
      );
      assert.equal(places.size, table.length);
    }
    moment.pages.forEach(({ owners, findable, holder, place, filled }, page) => {
      assert.deepEqual([...pools.litBy(moment, { page }).requests], owners);
      const said = pools.pointedAt(pool, n, moment, { page });
      const { tokens } = pool.requests[Math.max(0, holder)];
      const text = tokens.slice(place * pool.page_size, place * pool.page_size + filled);
      const kind = owners.length ? (filled ? "owned" : "empty") : findable ? "findable" : "free";
      seen.add(kind);
      if (kind === "free" || kind === "empty") return;
      for (const word of text) assert.ok(said.includes(word), said);
      for (const owner of findable ? [holder] : owners)
        assert.match(said, new RegExp(`\\b${pool.marks[owner]}\\b`));
    });
    assert.equal(pools.litBy(moment, null).requests.size, 0);
    const words = pools.describePool(pool, n, moment);
    const found = moment.pages.filter((page) => page.findable).length;
    assert.equal(words.length, step.running.length + Math.min(8, found));
    for (let request = 0; request < pool.marks.length; request++)
      seen.add(
        pools.pointedAt(pool, n, moment, { request }).match(/waits|has left|not come|in this order/)[0],
      );
  });
  assert.deepEqual([...seen].sort(), [
    "findable",
    "free",
    "has left",
    "in this order",
    "not come",
    "owned",
    "waits",
  ]);
});

test("it fits in every width", () => {
  for (const name of NAMES)
    for (const width of WIDTHS) {
      const pool = pools.poolOf(load(`pool_${name}`).trace);
      const { line, lane, step, page, columns, high } = pools.poolLayout(pool, width);
      assert.ok(columns * page <= width && page >= 24 && high >= 20, "pages do not scroll");
      assert.ok(lane * pool.lanes <= 300 && line < width / 4);
      assert.ok(step >= 4 && (step === 4 || step * pool.steps.length + line <= width + 1e-9));
    }
});
