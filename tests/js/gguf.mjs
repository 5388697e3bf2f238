// Opens GGUF files for tests/test_live_gguf.py: [{ file, … }] comes in, what each asks for goes out, or why it fails.
import { readFileSync } from "node:fs";
import { openGguf } from "../../helpers/stepper/js/live/gguf.ts";

/** A tensor's shape and all its numbers, row by row; behind a margin, as a row may stand anywhere. */
function numbersOf(matrix) {
  if (matrix instanceof Float32Array) return { shape: [matrix.length], numbers: [...matrix] };
  const [F, C] = matrix.shape;
  const wide = new Float32Array(F * C + 3);
  for (let i = 0; i < F; i++) matrix.row(i, wide, i * C + 3);
  return { shape: [F, C], numbers: [...wide.subarray(3)] };
}

/** x (n, C) times a matrix. */
function product(matrix, x) {
  const out = new Float32Array((x.length / matrix.shape[1]) * matrix.shape[0]);
  matrix.times(Float32Array.from(x), x.length / matrix.shape[1], out);
  return [...out];
}

async function answer({ file, tensors = [], times = {}, texts = [], ids = [], streams = [], memory }) {
  Object.defineProperty(globalThis, "navigator", { value: { deviceMemory: memory }, configurable: true });
  try {
    const { weights, tokenizer, ...told } = await openGguf(new Blob([readFileSync(file)]));
    return {
      ...told,
      tensors: tensors.map((name) => numbersOf(weights(name))),
      times: Object.entries(times).map(([name, x]) => product(weights(name), x)),
      texts: texts.map((text) => tokenizer.encode(text)),
      ids: ids.map((id) => tokenizer.text(id)),
      streams: streams.map((ids) => {
        const adds = tokenizer.decodeStream();
        return ids.map((id, i) => adds(id, i === ids.length - 1));
      }),
    };
  } catch (error) {
    return { failed: error.message };
  }
}

const asked = JSON.parse(readFileSync(0, "utf8"));
const answers = [];
for (const each of asked) answers.push(await answer(each));
process.stdout.write(JSON.stringify(answers));
