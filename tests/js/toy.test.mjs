// The toy in the page against Python's, on the prompts of tests/toy_cases.py.
import assert from "node:assert/strict";
import { test } from "node:test";
import { runToy, toySays } from "../../helpers/stepper/js/toy.ts";
import { load } from "./traces.mjs";

const DIGITS = 1e-12; // of the largest number in the prompt

test("the toy says what Python's says, to 12 digits", () => {
  const { toy, cases } = load("toy_cases");
  assert.ok(cases.length >= 2000);
  let ties = 0;
  for (const { layers, numbers, v, contexts, logits, probabilities, choice } of cases) {
    const ran = runToy(toy, numbers, layers);
    const says = toySays(toy, ran.contexts);
    const rounding = DIGITS * Math.max(1, ...numbers.map(Math.abs));
    const pairs = [
      [ran.entries.at(-1).v, v],
      [ran.contexts.at(-1), contexts],
      [says.logits, logits],
      [says.probabilities, probabilities],
    ];
    for (const [got, expected] of pairs) {
      assert.equal(got.length, expected.length);
      const wrong = got.findIndex((x, i) => !(Math.abs(x - expected[i]) <= rounding));
      if (wrong >= 0) assert.fail(`${got[wrong]}, expected ${expected[wrong]}: ${numbers}`);
    }
    assert.ok(says.choice === choice || Math.abs(logits[says.choice] - logits[choice]) <= rounding); // a tie
    assert.equal(says.word, toy.vocabulary[says.choice]);
    ties += logits.filter((x) => x >= Math.max(...logits) - rounding).length > 1;
  }
  assert.ok(ties > 20, `${ties} ties`);
});
