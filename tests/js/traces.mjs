// The traces that tests/test_stepper.py writes before it runs these tests, and what each of their passes has to show.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { frameOf } from "../../helpers/stepper/js/frame.ts";
import { readTrace } from "../../helpers/stepper/js/trace.ts";

const folder = process.env.WATCH_IT_DECODE_TRACES;
if (!folder)
  throw new Error("run these by `python -m pytest tests/test_front_end.py`, which records the traces first");

export function load(name) {
  return JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8"));
}

export function record(name) {
  return readTrace(load(name));
}

export function frame(record_, event, { cached = true, layer = 0, row = null, head = null, ahead } = {}) {
  return frameOf(record_, { event, cached, layer, row, head, ahead });
}
