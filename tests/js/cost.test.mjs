// What bounds a pass, in the page against Python, on the grid of tests/work_cases.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  boundOf,
  secondsOf,
  tokensUntilArithmetic,
  usersThatFit,
  workOfPass,
} from "../../helpers/stepper/js/cost.js";
import { load } from "./traces.mjs";

const { models, cards, cases, prompts } = load("work");
const by = (list) => Object.fromEntries(list.map((one) => [one.name, one]));
const [model, card] = [by(models), by(cards)];
const near = (got, expected, what) =>
  assert.ok(Math.abs(got - expected) <= 1e-12 * expected, `${what}: ${got}, expected ${expected}`);

test("operations, bytes, bound and least time are Python's", () => {
  assert.ok(cases.length > 200);
  const bounds = new Set();
  for (const { model: name, pass, work, bounds: told } of cases) {
    const got = workOfPass(model[name], pass);
    for (const [ours, theirs] of Object.entries({ rowsRead: "rows_read", rowsWritten: "rows_written" }))
      near(got[ours], work[theirs], `${ours} of ${name}, ${JSON.stringify(pass)}`);
    for (const part of ["products", "readout", "attention", "weights"])
      near(got[part], work[part], `${part} of ${name}, ${JSON.stringify(pass)}`);
    for (const [on, [bound, seconds]] of Object.entries(told)) {
      assert.equal(boundOf(got, card[on]), bound, `${name} on ${on}, ${JSON.stringify(pass)}`);
      near(secondsOf(got, card[on]).least, seconds, `${name} on ${on}`);
      bounds.add(bound);
    }
  }
  assert.deepEqual([...bounds].sort(), ["arithmetic", "rows", "weights"]);
});

test("users that fit and the first prompt that is bound by arithmetic are Python's", () => {
  for (const [name, on, n, fit, until] of prompts) {
    assert.equal(usersThatFit(model[name], card[on], n), fit, `${name} on ${on}, ${n} tokens`);
    assert.equal(tokensUntilArithmetic(model[name], card[on], n), until, `${name} on ${on}, ${n} users`);
  }
});
