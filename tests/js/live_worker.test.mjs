// What the page's Worker says to files and requests that cannot be right, and when it is to stop.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { conversation } from "../../helpers/stepper/js/live/answer.js";
import { KVCache } from "../../helpers/stepper/js/live/cache.js";
import { half } from "../../helpers/stepper/js/live/matrix.js";
import { likeliest, mulberry32, ranked } from "../../helpers/stepper/js/live/sample.js";
import { chatPrompt } from "../../helpers/stepper/js/live/tokens.js";

const FILE = readFileSync(new URL("../../helpers/weights/model.f16.safetensors", import.meta.url));
const START = 8 + Number(FILE.readBigUInt64LE());
const SETTINGS = { temperature: 0, topK: null, topP: null, seed: 0 };
const WRITE = { do: "write", steps: 2, cache: true, noEos: false, settings: SETTINGS, record: [] };
const [TODAY, WEATHER, IS, SO] = [1, 2, 3, 4];
const LAST = ["loaded", "tokens", "written", "changed", "failed"];

/** Ask one thing after the other; the last answer to each. `heard` sees every answer, and may ask `more`. */
function talk(asks, heard = () => {}, more = 0) {
  const ends = [];
  return new Promise((resolve) => {
    const ask = conversation((answer) => {
      heard(answer, ask);
      if (LAST.includes(answer.op) && ends.push(answer) === asks.length + more) resolve(ends);
    });
    asks.forEach((asked, id) => ask({ id, ...asked }));
  });
}

const load = (bytes) => ({ do: "load", file: new Uint8Array(bytes).buffer, kind: "safetensors" });

/** The shipped file with another header. */
function changed(change) {
  const header = JSON.parse(FILE.subarray(8, START));
  const about = JSON.parse(header.__metadata__.model);
  const text = JSON.stringify(
    change(header, about) ?? { ...header, __metadata__: { model: JSON.stringify(about) } },
  );
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(Buffer.byteLength(text)));
  return Buffer.concat([size, Buffer.from(text), FILE.subarray(START)]);
}

const DAMAGED = {
  empty: [Buffer.alloc(0), "has 0 bytes"],
  "cut off in the header": [FILE.subarray(0, 500), "cut off"],
  "cut off behind it": [FILE.subarray(0, FILE.length - 2), "cut off"],
  "a huge header": [
    Buffer.concat([Buffer.from("00000000000000f0", "hex"), FILE.subarray(8)]),
    "asks for 1729",
  ],
  "no JSON": [Buffer.concat([FILE.subarray(0, 8), Buffer.from("{{"), FILE.subarray(10)]), "no JSON"],
  "a number for a header": [changed(() => 7), "expected metadata with a config"],
  "other metadata": [changed(() => ({ __metadata__: { model: "gpt" } })), "expected metadata with a config"],
  "no vocabulary": [changed((_, about) => void delete about.vocabulary), "undefined words; expected 185"],
  "fewer words": [changed((_, about) => void about.vocabulary.pop()), "184 words; expected 185"],
  "no such kind": [
    changed((_, about) => void (about.config.model_type = "gpt2")),
    "gpt2; expected llama or qwen2",
  ],
  "another RoPE": [
    changed((_, { config }) => void (config.rope_scaling = { rope_type: "yarn" })),
    "yarn; expected",
  ],
  "half a layer": [
    changed((_, about) => void (about.config.num_hidden_layers = 3.5)),
    "num_hidden_layers is 3.5",
  ],
  "no epsilon": [changed((_, about) => void delete about.config.rms_norm_eps), "rms_norm_eps is undefined"],
  "heads that do not fit": [
    changed((_, { config }) => void (config.num_key_value_heads = 3)),
    "on 3 KV heads",
  ],
  "another width": [
    changed((_, about) => void (about.config.intermediate_size = 350)),
    "(352, 128); expected (350, 128)",
  ],
  "one layer too many": [
    changed((_, about) => void (about.config.num_hidden_layers = 5)),
    "layers.4.input_layernorm.weight is missing",
  ],
  "a norm that is a matrix": [
    changed((header) => void (header["model.norm.weight"].shape = [8, 16])),
    "(8, 16); expected (128)",
  ],
  "eight bits": [
    changed((header) => void (header["model.norm.weight"].dtype = "I8")),
    "is I8; expected F16 or F32",
  ],
  "a tensor without a shape": [
    changed((header) => void (header["model.norm.weight"] = { dtype: "F16" })),
    "model.norm.weight",
  ],
  "bytes before the file": [
    changed((header) => void (header["model.norm.weight"].data_offsets = [-256, 0])),
    "bytes -256 to 0",
  ],
  NaN: [Buffer.concat([FILE.subarray(0, FILE.length - 2), Buffer.from([0, 0x7e])]), "NaN or infinity"],
};

for (const [name, [bytes, said]] of Object.entries(DAMAGED))
  test(`a file with ${name}: a sentence, and the model before stays`, async () => {
    const tokens = [TODAY, WEATHER, IS, SO];
    const [, refused, written] = await talk([load(FILE), load(bytes), { ...WRITE, tokens }]);
    assert.equal(refused.op, "failed");
    assert.ok(refused.say.includes(said), refused.say);
    assert.match(refused.say, /expected .*: .*(file|again)/);
    assert.equal(written.why, "steps");
  });

const REFUSED = {
  "nothing was loaded": [{ do: "tokenize", text: "so" }, "no model yet", []],
  "another kind of file": [{ do: "load", file: new ArrayBuffer(9), kind: "onnx" }, "of kind onnx"],
  "an empty text": [{ ...WRITE, tokens: [] }, "the text is empty"],
  "an id that is none": [
    { ...WRITE, tokens: [TODAY, 185] },
    "token id 185 is out of range; expected 0 to 184",
  ],
  "half an id": [{ ...WRITE, tokens: [0.5] }, "token id 0.5"],
  "no steps": [{ ...WRITE, tokens: [TODAY], steps: 0 }, "0 tokens were asked for"],
  "a cold temperature": [
    { ...WRITE, tokens: [TODAY], settings: { ...SETTINGS, temperature: -1 } },
    "temperature is -1",
  ],
  "top-k over all": [
    { ...WRITE, tokens: [TODAY], settings: { ...SETTINGS, topK: 186 } },
    "expected 1 to 185",
  ],
  "top-p of nothing": [{ ...WRITE, tokens: [TODAY], settings: { ...SETTINGS, topP: 0 } }, "top-p is 0"],
  "half a seed": [{ ...WRITE, tokens: [TODAY], settings: { ...SETTINGS, seed: 0.5 } }, "seed is 0.5"],
  "an unknown word": [{ do: "tokenize", text: "Oslo is Osla" }, "“Osla” (nearest: Oslo, "],
};

for (const [name, [asked, said, before = [load(FILE)]]] of Object.entries(REFUSED))
  test(`${name} is refused in a sentence`, async () => {
    const answer = (await talk([...before, asked])).at(-1);
    assert.equal(answer.op, "failed");
    assert.ok(answer.say.includes(said), answer.say);
    assert.match(answer.say, /expected/);
  });

test("stop is heard at once, by all that was asked before it, and what comes after runs", async () => {
  const endless = { ...WRITE, tokens: [TODAY], steps: 60, noEos: true };
  const said = [];
  const asks = [load(FILE), endless, { ...endless, cache: false, record: [[0, 0]] }];
  const hear = (answer, ask) => {
    if (answer.op !== "pass" || answer.id !== 1 || said.push(answer.said.token) < 3) return;
    ask({ do: "stop" });
    ask({ ...WRITE, id: 9, tokens: [TODAY] });
  };
  const [, first, second, last] = await talk(asks, hear, 1);
  assert.deepEqual([first.why, first.tokens], ["stopped", said]);
  assert.equal(said.length, 3);
  assert.deepEqual([second.why, second.tokens, second.trace.runs[0].passes], ["stopped", [], []]);
  assert.deepEqual([last.id, last.why], [9, "steps"]);
});

test("stop is heard in the middle of a long pass", async () => {
  const tokens = Array(300).fill(TODAY); // four layers of them take a second, or nearly
  const hear = ({ op }, ask) => op === "loaded" && setTimeout(() => ask({ do: "stop" }), 20);
  const [, written] = await talk([load(FILE), { ...WRITE, tokens }], hear);
  assert.deepEqual([written.why, written.tokens], ["stopped", []]);
});

test("a change that is stopped says so", async () => {
  const text = [TODAY, WEATHER, IS, SO];
  const change = { do: "change", before: text, now: text, steps: 5, settings: SETTINGS };
  const [, answer] = await talk(
    [load(FILE), change],
    ({ op }, ask) => op === "loaded" && ask({ do: "stop" }),
  );
  assert.match(answer.say, /^stopped, as asked/);
});

test("a chat template is read in a time that grows as it does", () => {
  const began = performance.now();
  chatPrompt("<|im_start|>system\n".repeat(20_000), "so?"); // 380 kB: beginning by beginning it takes 14 s
  assert.ok(performance.now() - began < 1000);
});

test("the cache goes back to no length that it does not hold", () => {
  const cache = new KVCache({ nLayers: 1, nKvHeads: 1, headDim: 2, maxSeqLen: 4 });
  cache.append(0, new Float32Array(6), new Float32Array(6));
  cache.advance(3);
  for (const length of [-1, 4, 1.5, NaN]) assert.throws(() => cache.truncate(length), /expected 0 to 3/);
  assert.throws(() => cache.positions(2), /make 5; expected at most 4/);
  assert.throws(() => cache.advance(2), /make 5; expected at most 4/);
  assert.equal(cache.length, 3);
});

test("memory that is not there is a sentence that says what to do", async () => {
  const file = { arrayBuffer: () => Promise.reject(new RangeError("Array buffer allocation failed")) };
  Object.setPrototypeOf(file, Blob.prototype);
  const [, refused, written] = await talk([load(FILE), { do: "load", file, kind: "safetensors" }, { ...WRITE, tokens: [TODAY] }]); // prettier-ignore
  assert.match(refused.say, /no more memory \(Array buffer allocation failed\); expected .* a smaller model/);
  assert.equal(written.why, "steps", "the model before stays");
});

test("the likeliest are the first of all by rank, equal ones and those with no chance among them", () => {
  const random = mulberry32(1);
  for (let V = 1; V < 30; V++)
    for (let n = 1; n < 8; n++) {
      const logits = Float32Array.from({ length: V }, () =>
        random() < 0.2 ? -Infinity : Math.floor(4 * random()),
      );
      assert.deepEqual(likeliest(logits, n), [...ranked(logits).subarray(0, n)]);
    }
});

test("numbers of 16 bits", () => {
  const bits = {
    0x3c00: 1,
    0xc000: -2,
    0x3555: 0.333251953125,
    0x7bff: 65504,
    1: 2 ** -24,
    0x83ff: -1023 * 2 ** -24,
  };
  for (const [stored, x] of Object.entries({
    ...bits,
    0x400: 2 ** -14,
    0xfc00: -Infinity,
    0x7c00: Infinity,
    0: 0,
  }))
    assert.equal(half(Number(stored)), x);
  assert.ok(Number.isNaN(half(0x7e00)) && Object.is(half(0x8000), -0));
});

test("where the Worker dies, each request that waits is told so", async () => {
  const workers = [];
  const stub = { postMessage() {}, terminate: () => workers.pop() };
  Object.assign(globalThis, { LIVE_WORKER: "", Worker: function () { return workers.push(stub) && stub; } }); // prettier-ignore
  const { startLive } = await import("../../helpers/stepper/js/live/start.js");
  const heard = [];
  const live = startLive((answer) => heard.push(answer));
  for (const id of [1, 2, 3]) live.ask({ ...WRITE, id, tokens: [TODAY] });
  live.ask({ do: "stop" });
  stub.onmessage({ data: { id: 1, op: "pass" } });
  stub.onmessage({ data: { id: 2, op: "written" } });
  stub.onerror({ message: "out of memory" });
  assert.deepEqual(heard.map(({ id, op }) => [id, op]).slice(2), [[1, "failed"], [3, "failed"]]); // prettier-ignore
  assert.match(heard[2].say, /stopped \(out of memory\).*expected/);
  live.ask({ do: "stop" });
  assert.equal(workers.length, 0, "it was ended");
  live.ask({ ...WRITE, id: 4, tokens: [TODAY] });
  assert.equal(workers.length, 1, "and another one is started with the next request");
  live.end();
  assert.deepEqual(workers, []);
});
