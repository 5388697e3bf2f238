// What modelOf makes of a config, or refuses and how, against Python's model_of: tests/config_cases.py has the cases.
import assert from "node:assert/strict";
import { test } from "node:test";
import { lineOf, modelOf } from "../../helpers/stepper/js/model_of.ts";
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
    if (typeof expected === "string") assert.throws(() => lineOf(config), { message: expected }, what);
    else assert.deepEqual(lineOf(config), expected, what);
  }
  assert.ok(counted.lines > 500 && counted.refusals > 500, JSON.stringify(counted));
});

test("who needs parameters that are not known says why in one sentence", () => {
  const gelu = { ...configs["Llama-3.1-8B"], model_type: "new", hidden_act: "gelu" };
  assert.throws(() => modelOf(gelu), {
    message:
      "new: KV entries alone are counted, and no parameters, so neither the weights' bytes nor a step's time is " +
      'known: hidden_act is "gelu", and the MLPs of model_type "new" are not known here; those with silu have ' +
      "three matrices.",
  });
  assert.deepEqual(modelOf(configs["Qwen3-0.6B"]), lineOf(configs["Qwen3-0.6B"]));
});
