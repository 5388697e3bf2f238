// The time of a step, in the page against Python's step_time, on the grid of tests/work_cases.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import { boundOf, stepTime, tokensUntilArithmetic, usersThatFit } from "../../helpers/stepper/js/cost.js";
import { load } from "./traces.mjs";

const { models, cards, cases, prompts } = load("work");
const by = (list) => Object.fromEntries(list.map((one) => [one.name, one]));
const [model, card] = [by(models), by(cards)];
const near = (got, expected, what) =>
  assert.ok(Math.abs(got - expected) <= 1e-12 * expected, `${what}: ${got}, expected ${expected}`);

test("each term of a step, its total and its bound are Python's", () => {
  assert.ok(cases.length > 2000);
  for (const [name, on, tokens, { new_tokens, weight_bits, row_bits, ...same }, terms, bound] of cases) {
    const options = { ...same, newTokens: new_tokens, weightBits: weight_bits, rowBits: row_bits };
    const got = stepTime(model[name], card[on], tokens, options);
    const what = `${name} on ${on}, ${tokens} tokens, ${JSON.stringify(options)}`;
    const { rows, weights, attention, products, memory, compute, total } = got;
    [rows, weights, attention, products, memory, compute, total].forEach((x, i) => near(x, terms[i], what));
    assert.equal(boundOf(got), bound, what);
  }
  assert.deepEqual([...new Set(cases.map((one) => one[5]))].sort(), ["arithmetic", "rows", "weights"]);
});

test("users that fit and the first prompt that is bound by arithmetic are Python's", () => {
  for (const [name, on, n, fit, until] of prompts) {
    assert.equal(usersThatFit(model[name], card[on], n), fit, `${name} on ${on}, ${n} tokens`);
    assert.equal(tokensUntilArithmetic(model[name], card[on], n), until, `${name} on ${on}, ${n} users`);
  }
});
