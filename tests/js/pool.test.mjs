// The pool at every step, held against the books of the scheduler that ran.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as pools from "../../helpers/stepper/js/pool.ts";
import { load } from "./traces.mjs";

const NAMES = ["six", "chunks", "idle", "numbers", "hostile", "many"];
const EMPTY = { steps: [], n_pages: 3, page_size: 2 };
const WIDTHS = [262, 360, 940, 1164];

for (const name of NAMES)
  test(`${name}: each step is as the scheduler has it in its books`, () => {
    const { trace, books } = load(`pool_${name}`);
    const pool = pools.poolOf(trace);
    const size = trace.page_size;
    const sums = { run: 0, found: 0 };
    let used = 0;
    let had = new Set();
    assert.equal(trace.steps.length, books.length);
    books.forEach((book, n) => {
      const { pages } = pools.momentAt(pool, n);
      assert.deepEqual(
        pages.map(({ owners }) => owners.length),
        book.owners,
      );
      assert.deepEqual(pool.counts[n], book.counts);
      pages.forEach((page, i) => page.findable || assert.equal(page.filled, book.filled[i]));
      const found = pages.flatMap(({ findable, holder, place }, i) =>
        findable ? [[i, trace.requests[holder].tokens.slice(place * size, (place + 1) * size)]] : [],
      );
      assert.deepEqual(Object.fromEntries(found), book.findable, "the text that can be found is shown");
      const owned = new Set([...pages.keys()].filter((i) => pages[i].owners.length));
      for (const i of [...owned].filter((i) => !had.has(i))) {
        const { place, taken } = pages[i];
        const old = trace.steps[n].running.some(
          ({ table, found }) => table[place] === i && place < Math.floor(found / size),
        );
        assert.equal(taken, !old);
      }
      had = owned;
      used = Math.max(used, book.counts.used);
      for (const what of ["run", "found"]) sums[what] += book.counts[what];
      for (const [what, soFar] of Object.entries({ ...sums, used }))
        assert.deepEqual(pools.countAt(pool, n, what).soFar, soFar);
    });
  });

test("the bands are the steps: each share lies in one block, and who was preempted runs again", () => {
  const met = new Set();
  const sorted = (rows) => rows.map(String).sort();
  for (const name of NAMES) {
    const { steps, requests, stays } = pools.poolOf(load(`pool_${name}`).trace);
    const cells = stays.flatMap(({ slot, request, blocks }) =>
      blocks.flatMap(({ kind, from, to }) =>
        [...Array(to - from).keys()].map((i) => ({ n: from + i, slot, request, kind })),
      ),
    );
    const shares = steps.flatMap(({ running }, n) => running.map((one) => [n, one.slot, one.request]));
    assert.deepEqual(sorted(cells.map(({ n, slot, request }) => [n, slot, request])), sorted(shares));
    const back = stays.filter((stay) => stay.back).map(({ to, request }) => [to, request]);
    assert.deepEqual(
      sorted(back),
      sorted(steps.flatMap(({ preempted }, n) => preempted.map((one) => [n, one]))),
    );
    const ran = new Map();
    for (const { n, request, kind } of cells.sort((a, b) => a.n - b.n)) {
      const { start, stop } = steps[n].running.find((one) => one.request === request);
      const before = ran.get(request) ?? 0;
      const prompt = start < requests[request].prompt ? "prompt" : "fresh";
      assert.equal(kind, start === stop ? "idle" : start < before ? "again" : prompt);
      ran.set(request, Math.max(before, stop));
      met.add(kind);
    }
  }
  assert.deepEqual([...met].sort(), ["again", "fresh", "idle", "prompt"]);
});

test("what is said of a step", () => {
  const said = (name, n, paged = true) =>
    pools.poolSentence(pools.poolOf(load(`pool_${name}`).trace), n, paged);
  assert.deepEqual(
    [0, 1, 11, 19].map((n) => said("six", n)),
    [
      "Step 1: A runs; 6 of 12 pages in use.",
      "Step 2: A, B run; 10 of 12 pages in use, 2 shared. B begins with pages that were filled before: 8 tokens used again.",
      "Step 12: B, C run; D, E, F wait; 11 of 12 pages in use. D was preempted: no page was free. Then B leaves.",
      "Step 20: F runs; 3 of 12 pages in use. Then F leaves.",
    ],
  );
  assert.match(said("six", 1, false), /^Step 2: A, B run\. B begins/);
  assert.match(said("idle", 2), /B runs nothing/);
  assert.match(said("many", 9), / and 2 more run;/);
});

test("letters are short and all different", () => {
  const marks = (ids) => pools.poolOf({ ...EMPTY, requests: ids.map((id) => ({ id })) }).marks;
  assert.deepEqual(marks(["A", "b2"]), ["A", "b2"]);
  for (const ids of [
    ["A", "A"],
    ["A", "12"],
    ["A", "long"],
  ])
    assert.deepEqual(marks(ids), ["A", "B"]);
  const many = marks([...Array(64).keys()].map(String));
  assert.equal(new Set(many).size, 64);
  assert.deepEqual([...new Set(many.map(({ length }) => length))].sort(), [1, 2]);
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
      const [where] = said.match(/waits|has left|not arrived|in this order/);
      const ran = pool.stays.some((stay) => stay.request === request && stay.from < n);
      if (/left|arrived/.test(where)) assert.equal(where, ran ? "has left" : "not arrived");
      seen.add(where);
    }
  });
  assert.deepEqual([...seen].sort(), [
    "findable",
    "free",
    "has left",
    "in this order",
    "not arrived",
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
  const one = pools.poolLayout({ steps: [0], lanes: 1, n_pages: 1, counts: [] }, 61);
  assert.deepEqual([one.page, one.high], [61, 38], "0.62 of its width, rounded");
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

test("a page shows its state, letters as long as they fit, and what is filled", () => {
  const pool = { marks: ["A", "B", "C10"], page_size: 4 };
  const page = { owners: [], holder: 0, before: 0, filled: 0, taken: false, findable: false };
  const shown = (more, size = { page: 28, high: 20 }) => pools.pageOf(pool, { ...page, ...more }, size);
  assert.deepEqual(shown({}), { state: "free", text: "", filled: 0, fresh: null });
  assert.deepEqual(shown({ filled: 3 }).filled, 0, "what lies in a free page is not there");
  assert.deepEqual(shown({ findable: true, filled: 4 }), {
    ...{ state: "findable", text: "A", filled: 100, fresh: null },
  });
  assert.deepEqual(shown({ owners: [1], before: 1, filled: 3 }), {
    ...{ state: "owned", text: "B", filled: 75, fresh: [25, 50] },
  });
  assert.equal(shown({ owners: [1], before: 3, filled: 3 }).fresh, null, "nothing was written");
  const { state, text } = shown({ owners: [0, 1] });
  assert.deepEqual([state, text], ["owned shared", "A\u200bB"]);
  assert.equal(shown({ owners: [0, 2] }).text, "×2", "of four letters three fit");
  assert.equal(shown({ owners: [0, 2] }, { page: 28, high: 28 }).text, "A\u200bC10", "in two lines");
  assert.equal(shown({ owners: [0, 1] }, { page: 19, high: 27 }).text, "×2");
});

test("those who wait: as many as there is room for, how many more, and who has run before", () => {
  const stays = [{ request: 1, from: 2 }];
  const queue = (n, lane) =>
    pools.queueOf({ steps: Array(4).fill({ waiting: [0, 1, 2] }), stays, lanes: 2 }, n, lane);
  assert.deepEqual(queue(3, 31), { shown: [0, 1, 2], back: [1], more: 0 });
  assert.deepEqual(queue(2, 30), { shown: [0], back: [], more: 2 }, "one place is for the number");
  assert.deepEqual(queue(2, 7), { shown: [], back: [], more: 3 });
});

test("numbers of the axis do not run into each other, and a band has its letter where it fits", () => {
  const ticks = (step) => pools.ticksOf({ steps: Array(25) }, step).map((n) => n + 1);
  assert.equal(ticks(34).length, 25);
  assert.deepEqual(ticks(33.9).slice(0, 4), [1, 2, 4, 6]);
  assert.deepEqual(ticks(3.4), [1, 10, 20]);
  assert.deepEqual(ticks(0.1), [1]);
  const fits = [
    [19, 12],
    [18, 12],
    [19, 11],
  ].map(([width, lane]) => pools.fitsIn("A1", width, lane));
  assert.deepEqual(fits, [true, false, false]);
});

test("the next request by key goes round by way of none; an address is a step and a request, or the nearest", () => {
  const pool = { marks: ["A", "B"], steps: Array(9) };
  const next = (by) => [null, 0, 1].map((request) => pools.nextRequest(pool, request, by));
  assert.deepEqual(
    [next(1), next(-1)],
    [
      [0, 1, null],
      [1, null, 0],
    ],
  );
  const from = (values) => pools.poolFrom(pool, new Map(Object.entries(values)), 5);
  assert.deepEqual(from({}), { step: 5, request: null, wrong: [] });
  assert.deepEqual(from({ step: "9", request: "B" }), { step: 8, request: 1, wrong: [] });
  assert.deepEqual(from({ step: "10", request: "Z" }), {
    step: 8,
    request: null,
    wrong: ["step", "request"],
  });
  assert.deepEqual(from({ step: "x", request: "A" }), { step: 5, request: 0, wrong: ["step"] });
});
