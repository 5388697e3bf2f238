// What modelOf makes of a config, or refuses and how, against Python's model_of: tests/config_cases.py has the cases.
import assert from "node:assert/strict";
import { test } from "node:test";
import { modelOf } from "../../helpers/stepper/js/model_of.js";
import { load } from "./traces.mjs";

const { configs, cases } = load("configs");

function changed(config, [key, value]) {
  if (config.text_config?.constructor === Object && key !== "text_config")
    return { ...config, text_config: changed(config.text_config, [key, value]) };
  const { [key]: _, ...rest } = config;
  return value === "(drop)" ? rest : { ...rest, [key]: value };
}

test("a config gives the line, or the refusal, that it gives in Python", () => {
  const counted = { lines: 0, refusals: 0 };
  for (const [name, changes, expected] of cases) {
    const config = typeof name === "string" ? changes.reduce(changed, configs[name]) : name;
    const what = `${name} with ${JSON.stringify(changes)}`;
    counted[typeof expected === "string" ? "refusals" : "lines"] += 1;
    if (typeof expected === "string") assert.throws(() => modelOf(config), { message: expected }, what);
    else assert.deepEqual(modelOf(config), expected, what);
  }
  assert.ok(counted.lines > 500 && counted.refusals > 500, JSON.stringify(counted));
});
