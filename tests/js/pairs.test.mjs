// Two runs laid side by side: the same passes belong together, whatever else happened between them in one run.
import assert from "node:assert/strict";
import { test } from "node:test";
import { counterpart } from "../../helpers/stepper/js/trace.js";
import { record } from "./traces.mjs";

const there = (made, cached = true) => {
  const runs = cached ? [made.withCache, made.withoutCache] : [made.withoutCache, made.withCache];
  return runs[0].events.map((event) => counterpart(...runs, event).index);
};

test("the other run is entered at the same pass, else at the last before it that both have", () => {
  assert.deepEqual(there(record("toy")), [0, 1, 2]);
  assert.deepEqual(there(record("fewer")), [0, 1, 2, 3, 3, 3]); // decode 1 to 4; without the cache to 2
  assert.deepEqual(there(record("fewer"), false), [0, 1, 2, 3]);
});
