// The time of a step, in the page against Python's step_time, on the grid of tests/work_cases.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  boundOf,
  longestOf,
  OPTIONS,
  stepTime,
  tokensUntilCompute,
  usersThatFit,
} from "../../helpers/stepper/js/cost.ts";
import { load } from "./traces.mjs";

const { models, cards, cases, prompts } = load("work");
const by = (list) => Object.fromEntries(list.map((one) => [one.name, one]));
const [model, card] = [by(models), by(cards)];
const near = (got, expected, what) =>
  assert.ok(Math.abs(got - expected) <= 1e-12 * expected, `${what}: ${got}, expected ${expected}`);
const TERMS = [
  "kv_cache",
  "weights",
  "attention",
  "products",
  "launch",
  "collectives",
  "memory",
  "compute",
  "total",
];
const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase());

test("each term of a step, its total and its bound are Python's, for each model and argument", () => {
  for (const [name, on, tokens, asked, terms, bound] of cases) {
    const options = Object.fromEntries(Object.entries(asked).map(([key, value]) => [camel(key), value]));
    const got = stepTime(model[name], card[on], tokens, options);
    const what = `${name} on ${on}, ${tokens} tokens, ${JSON.stringify(options)}`;
    TERMS.forEach((term, i) => near(got[term], terms[i], `${what}: ${term}`));
    assert.deepEqual([boundOf(got), longestOf(got)], bound, what);
  }
  const seen = (of) => [...new Set(cases.flatMap(of))].sort();
  assert.deepEqual(
    seen((one) => one[5]),
    [
      "attention",
      "collectives",
      "compute-bound",
      "kv_cache",
      "launch",
      "memory-bound",
      "products",
      "weights",
    ],
  );
  assert.deepEqual(
    seen((one) => [one[0]]),
    models.map((one) => one.name).sort(),
  );
  assert.deepEqual(
    seen((one) => Object.keys(one[3]).map(camel)),
    Object.keys(OPTIONS).sort(),
  );
});

test("users that fit and the first prompt that is compute-bound are Python's", () => {
  for (const [name, on, n, fits, until] of prompts) {
    for (const [bits, many, fit] of fits)
      assert.equal(
        usersThatFit(model[name], card[on], n, { weightBits: bits, kvBits: bits, cards: many }),
        fit,
        `${many} ${on}, ${name} in ${bits} bits, ${n} tokens`,
      );
    assert.equal(
      tokensUntilCompute(model[name], card[on], { users: n }),
      until,
      `${name} on ${on}, ${n} users`,
    );
  }
});
