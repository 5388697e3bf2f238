// The traces that tests/test_stepper.py records before it runs these tests, and small ones made here.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { readTrace } from "../../helpers/stepper/js/trace.js";
import { frameOf } from "../../helpers/stepper/js/frame.js";

const folder = process.env.WATCH_IT_DECODE_TRACES;
if (!folder)
  throw new Error("run these by `python -m pytest tests/test_stepper.py`, which records the traces first");

export function load(name) {
  return JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8"));
}

export function record(name) {
  return readTrace(load(name));
}

export function frame(record_, event, { cached = true, layer = 0, row = null, headGroup = 0 } = {}) {
  return frameOf(record_, { event, cached, layer, row, headGroup });
}

/** A pass of one sequence; what is not given is empty. */
export function pass(phase, part, counts = {}) {
  return {
    op: "pass",
    phase,
    parts: [
      {
        sequence: 0,
        new: [],
        visible: [],
        read: [],
        written: [],
        kept: [0, 0],
        repeated: [],
        target: null,
        contexts: {},
        out: [],
        ...part,
      },
    ],
    shapes: [],
    counts: { positions: 0, kv_rows: 0, rows_read: 0, pairs: 0, products: 0, ...counts },
  };
}

export function traceOf(prompt, texts, events, { cache = "growing", more = [] } = {}) {
  return readTrace({
    model: { name: "made", n_layers: 1, n_heads: 1, n_kv_heads: 1, head_names: null },
    recorded: [[0, 0]],
    sequences: [
      {
        prompt,
        tokens: texts.map((text, i) => ({
          text,
          id: null,
          position: i,
          origin: i < prompt ? "prompt" : "generated",
        })),
      },
    ],
    runs: [{ name: "made", cache, events }, ...more],
    weights: { encoding: "u16-base64", rows: {} },
    values: null,
  });
}
