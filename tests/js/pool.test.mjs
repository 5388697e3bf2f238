// The pool at every step, held against what Python says of the same traces; tests/test_pool.py holds that to the books.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as pools from "../../helpers/stepper/js/pool.ts";
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
      if (kind === "free" || kind === "empty") return assert.doesNotMatch(said, /okens/);
      for (const word of text) assert.ok(said.includes(word), said);
      const first = place * pool.page_size + 1;
      assert.match(said, new RegExp(`okens ${first} to ${first + filled - 1}\\b`), "counted from 1");
      for (const owner of findable ? [holder] : owners)
        assert.match(said, new RegExp(`\\b${pool.marks[owner]}\\b`));
    });
    assert.equal(pools.litBy(moment, null).requests.size, 0);
    const words = pools.describePool(pool, n, moment);
    const found = moment.pages.filter((page) => page.findable).length;
    assert.equal(words.length, step.running.length + Math.min(8, found));
    for (let request = 0; request < pool.marks.length; request++) {
      const said = pools.pointedAt(pool, n, moment, { request });
      const [where] = said.match(/waits|has left|not come|in this order/);
      const ran = pool.stays.some((stay) => stay.request === request && stay.from < n);
      if (/left|come/.test(where)) assert.equal(where, ran ? "has left" : "not come");
      seen.add(where);
    }
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

/** A pool with one text, by the tables of its steps; `more` is of the last step. */
function poolOfOne(tables, more = {}) {
  const step = (table) => ({
    running: [{ request: 0, slot: 0, start: 0, stop: 2 * table.length, table, found: 0 }],
    ...{ waiting: [], preempted: [], left: [], findable: [] },
  });
  const steps = tables.map(step);
  Object.assign(steps.at(-1), more);
  const requests = [{ id: "A", prompt: 2, tokens: ["a", "b", "c", "d", "e", "f"] }];
  return pools.poolOf({ requests, steps, n_pages: 3, page_size: 2 });
}

test("who is preempted and comes back in the same step takes all of its pages anew", () => {
  const taken = (pool) => pools.momentAt(pool, 1).pages.map((page) => page.taken);
  assert.deepEqual(taken(poolOfOne([[0], [0, 1]])), [false, true, false]);
  assert.deepEqual(taken(poolOfOne([[0], [0, 1]], { preempted: [0] })), [true, true, false]);
});

test("a page that the same text has again at another place", () => {
  const pool = poolOfOne([
    [0, 1, 2],
    [2, 0],
  ]);
  assert.deepEqual(
    [0, 1].map((n) => pools.momentAt(pool, n).pages[2].place),
    [2, 0],
  );
});

test("who ran in the first step alone has left", () => {
  const pool = poolOfOne([[0], [0]], { running: [] });
  assert.match(pools.pointedAt(pool, 1, pools.momentAt(pool, 1), { request: 0 }), /has left/);
});

test("lanes that do not fit beside the line of those who wait scroll", () => {
  const pool = poolOfOne(Array(100).fill([0]), { waiting: [0] }); // 100 steps of 4 pixels, and a line of 50
  assert.deepEqual(
    [449, 448].map((width) => pools.poolLayout(pool, width).scrolls),
    [false, true],
  );
});

test("few lanes, steps and pages are as large as can be read, many as small", () => {
  const sizes = ["six", "many"].map((name) => {
    const pool = pools.poolOf(load(`pool_${name}`).trace);
    const { lane, step, page, columns, high } = pools.poolLayout(pool, 940);
    return [lane, Number(step.toFixed(2)), page, columns, high];
  });
  assert.deepEqual(sizes, [
    [30, 44.5, 104, 6, 46],
    [8, 7.3, 26, 35, 20],
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
