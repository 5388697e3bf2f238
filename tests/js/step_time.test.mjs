// StepTime: the reader's case as data and as an address, what is said and drawn of it.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  caseAtFirst,
  caseFrom,
  FIELDS,
  stopAt,
  stopsOf,
  toldCase,
  typed,
} from "../../helpers/stepper/js/case.ts";
import { formatDigits, formatGib } from "../../helpers/stepper/js/format.ts";
import * as step from "../../helpers/stepper/js/step_time.ts";
import { load } from "./traces.mjs";

const machines = load("work");
const chosen = (wanted) => caseAtFirst(machines, { tokens: 500, users: 64, ...wanted });
const facts = (wanted) => step.factsOf(chosen(wanted), step.passOf(chosen(wanted)));
const said = (wanted) =>
  step
    .answerOf(facts(wanted))
    .map((part) => part.token ?? part)
    .join("");

test("an example by hand", () => {
  // 512 · 501 · 131,072 + 2 · 7,504,924,672 bytes at 3.35e12 a second
  assert.equal(
    said({ users: 512 }),
    "Llama-3.1-8B on H100: a step takes at least 17.8 ms, or 56.2 tokens a second for each of 512 users, 28,758 for all. " +
      "It is memory-bound; the longest part is reading the KV cache, 10.0 ms.",
  );
  const { holds, fits } = step.roomOf(facts({ users: 512 }));
  assert.equal(holds, "15.0 GiB of weights and 31.3 GiB of KV cache, of 80.0 GiB");
  assert.match(fits, /^1,063 users with 501 tokens/);
  assert.match(said({ users: 512, overlap: true }), /: a step takes at least 14\.5 ms, or /);
  assert.match(
    said({ users: 13, newTokens: 5, bandwidthReached: 70 }),
    /: a verification of 5 tokens takes about /,
  );
});

test("the bars: what runs at the same time begins at the same place, and the longer ones are the step", () => {
  for (const overlap of [false, true]) {
    const { step: seconds } = facts({ users: 512, overlap, cards: 2, collective: 20 });
    const bars = step.barsOf(seconds);
    const end = ({ from, share }) => from + share;
    for (const name of ["step", "memory", "compute"])
      for (const { term, share } of bars[name])
        assert.ok(Math.abs(share - seconds[term] / seconds.total) < 1e-12, term);
    assert.deepEqual(
      bars.memory.map(({ term }) => term),
      ["kv_cache", "weights"],
    );
    assert.deepEqual(
      bars.compute.map(({ term }) => term),
      ["attention", "products"],
    );
    const longer = overlap ? ["kv_cache", "weights"] : ["kv_cache", "products"];
    assert.deepEqual(
      bars.step.map(({ term }) => term),
      [...longer, "collectives"],
    );
    bars.step.slice(1).forEach((piece, i) => assert.ok(Math.abs(piece.from - end(bars.step[i])) < 1e-12));
    assert.ok(Math.abs(end(bars.step.at(-1)) - 1) < 1e-12);
    const [rows, weights, attention, products] = [...bars.memory, ...bars.compute].map(({ from }) => from);
    assert.deepEqual([rows, attention], [0, 0]);
    assert.equal(products, overlap ? end(bars.compute[0]) : weights);
  }
});

test("what the memory holds, and what a model has of its own", () => {
  const fits = (wanted) => step.roomOf(facts(wanted)).fits;
  assert.match(
    fits({ tokens: 8192, users: 65 }),
    /^65 users with 8,193 tokens each, the newest included, fit on H100/,
  );
  assert.match(fits({ tokens: 8192, users: 66 }), /^66 users .* do not fit on H100: 65 do/);
  assert.match(fits({ model: "gpt-oss-120b" }), /weights of gpt-oss-120b alone do not fit on H100/);
  assert.match(fits({ model: "gpt-oss-120b", cards: 4 }), /fit on 4 × H100 next to/);
  assert.match(fits({ tokens: 1e6, model: "Llama-2-7B" }), /KV entries of 1,000,001 tokens do not fit/);
  const left = (wanted) => step.leftOut(facts(wanted)).join(" ");
  assert.match(left({ model: "gpt-oss-120b" }), /uses 4 of 128 experts/);
  assert.match(left({ tokens: 131072 }), /reads 131,072 tokens at most/);
  assert.doesNotMatch(left({ tokens: 131071 }), /at most|KV heads|false|null/);
});

test("numbers as people write them", () => {
  assert.deepEqual([0.0123, 1.5, 39.12, 2070.4, 28758.2].map(formatDigits), [
    "0.0123",
    "1.50",
    "39.1",
    "2,070",
    "28,758",
  ]);
  assert.deepEqual([80 * 2 ** 30, 2 ** 30, 1.5 * 2 ** 20, 3000 * 2 ** 30].map(formatGib), [
    "80.0 GiB",
    "1.0 GiB",
    "1.5 MiB",
    "3,000.0 GiB",
  ]);
});

test("a number is typed with or without commas, within its range", () => {
  const typing = {
    8192: 8192,
    " 131,072 ": 131072,
    "1,000,000": 1000000,
    0: null,
    1.5: null,
    "1e3": null,
    "": null,
    20000000: null,
  };
  for (const [text, x] of Object.entries(typing)) assert.equal(typed("tokens", text), x, text);
  assert.equal(typed("collective", "2.5"), 2.5);
  assert.equal(typed("bandwidthReached", "101"), null);
  for (const [field, { least, most }] of Object.entries(FIELDS))
    for (const end of [least, most]) assert.equal(typed(field, String(end)), end, field);
});

test("a slider has many stops, from the least on, and stands at the nearest", () => {
  for (const field of Object.keys(FIELDS)) {
    const stops = stopsOf(field);
    assert.ok(stops.length >= 28, field);
    assert.equal(stops[0], FIELDS[field].least);
    assert.equal(stops.at(-1), FIELDS[field].slider ?? FIELDS[field].most);
    assert.ok(
      stops.every((x, i) => i === 0 || x > stops[i - 1]),
      field,
    );
    assert.equal(stops[stopAt(stops, stops[5])], stops[5]);
  }
  const tokens = [null, ...stopsOf("tokens")];
  assert.deepEqual(
    [null, 8192, 5e6].map((x) => tokens[stopAt(tokens, x)]),
    [null, 8000, 1e6],
  );
  assert.equal(stopAt([6, 8], 7), 0); // of two as near, the lower
});

const told = (one, first = chosen(), prefix = "case-") => {
  const [values, before] = [one, first].map((each) => toldCase(each, machines, prefix));
  return new Map(
    Object.entries(values).flatMap(([k, v]) => (v === before[k] || v === null ? [] : [[k, String(v)]])),
  );
};

test("an address holds all of a case, a model that the tables do not have too", () => {
  const own = { ...machines.models[3], name: "my own (é) model", experts: [8, 2], n_active: 12345 };
  own.kinds = machines.models.flatMap((model) => model.kinds).slice(0, 9);
  own.kinds[8] = { ...own.kinds[8], chosen: 2048 };
  const mine = {
    ...chosen({
      card: "A100",
      tokens: 1234,
      users: 7,
      newTokens: 5,
      cards: 2,
      collective: 12.5,
      overlap: true,
    }),
    ...{ weightBits: 4, kvBits: 8, bandwidthReached: 62.5, computeReached: 41, model: own },
  };
  for (const one of [mine, chosen(), chosen({ model: "DeepSeek-V3" }), caseAtFirst(machines)])
    for (const first of [chosen(), caseAtFirst(machines)]) {
      const wrong = [];
      const { model, ...found } = caseFrom(told(one, first), machines, first, wrong, "case-");
      const plain = ({ notes, ...sizes }) => sizes; // what was counted how is not in an address
      const { model: wanted, ...expected } = one;
      if (one.tokens === null && first.tokens !== null) continue; // there is no recorded length there
      assert.deepEqual([found, plain(model), wrong], [expected, plain(wanted), []]);
    }
  assert.equal(told(chosen()).size, 0);
  assert.deepEqual([...told(chosen({ users: 8 }), chosen(), "")], [["users", "8"]]);
});

test("what an address tells wrongly is as at first, and is named", () => {
  const odd = {
    "case-as": "Llama-9",
    "case-on": "abacus",
    "case-users": "0",
    "case-text": "1e9",
    "case-overlap": "maybe",
    "case-weight-bits": "3",
    users: "9",
  };
  const wrong = [];
  assert.deepEqual(caseFrom(new Map(Object.entries(odd)), machines, chosen(), wrong, "case-"), chosen());
  assert.deepEqual(wrong.sort(), Object.keys(odd).sort().slice(0, 6));
  const oss = told({ ...chosen(), model: { ...machines.models[3], name: "own", experts: [32, 4] } });
  const sizes = oss.get("case-sizes");
  for (const experts of ["4,32", "32,4"]) {
    const found = new Map([...oss, ["case-sizes", sizes.replace(",32,4*", `,${experts}*`)]]);
    const refused = [];
    caseFrom(found, machines, chosen(), refused, "case-");
    assert.deepEqual(refused, experts === "4,32" ? ["case-sizes"] : []);
  }
  for (const sizes of [
    "",
    "1,2,3",
    "1,1,1,1,1,1,0,,,*1,0,1,,0,1",
    "1,1,1,1,1,1,0,,,*1,1,1,,0,0",
    "1,1,1,1,1,x,0,,,*1,1,1,,0,1",
    "1,1,1,1,1,1,0,,,",
    "0,1,1,1,1,1,0,,,*1,1,1,,0,1",
    "1.5,1,1,1,1,1,0,,,*1,1,1,,0,1",
    "-1,1,1,1,1,1,0,,,*1,1,1,,0,1",
  ]) {
    const named = [];
    caseFrom(new Map([["case-sizes", sizes]]), machines, chosen(), named, "case-");
    assert.deepEqual(named, ["case-sizes"], sizes);
  }
});
