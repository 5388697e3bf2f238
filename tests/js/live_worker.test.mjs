// When the page's Worker is to stop, and what it says where memory or the Worker itself is gone.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { conversation } from "../../helpers/stepper/js/live/answer.ts";
import { likeliest, mulberry32 } from "../../helpers/stepper/js/live/sample.ts";
import { chatPrompt } from "../../helpers/stepper/js/live/tokens.ts";
import { Words } from "../../helpers/stepper/js/live/words.ts";

const FILE = readFileSync(new URL("../../helpers/weights/model.f16.safetensors", import.meta.url));
const SETTINGS = { temperature: 0, seed: 0 };
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

test("a text that is not to end is kept from each of a model's ends", async () => {
  const text = FILE.toString("latin1").replace("[0]", "[0,5]"); // the full stop ends a text, too
  const two = Buffer.from(text.replace("  ", ""), "latin1");
  assert.equal(two.length, FILE.length, "the header's last blanks give the room");
  const tokens = [TODAY, WEATHER, IS, SO];
  const [, ends] = await talk([load(two), { ...WRITE, tokens, steps: 6 }]);
  assert.deepEqual([ends.why, ends.tokens.at(-1)], ["eos", 5]);
  const [, written] = await talk([load(two), { ...WRITE, tokens, steps: 6, noEos: true }]);
  assert.ok(written.tokens.every((token) => token !== 0 && token !== 5));
});

test("stop is heard in the middle of a long pass", async () => {
  const tokens = Array(300).fill(TODAY); // four layers of them take a second, or nearly
  const hear = ({ op }, ask) => op === "loaded" && setTimeout(() => ask({ do: "stop" }), 20);
  const [, written] = await talk([load(FILE), { ...WRITE, tokens }], hear);
  assert.deepEqual([written.why, written.tokens], ["stopped", []]);
});

test("a text sent again runs what the kept one does not begin with, and says the same", async () => {
  const text = [TODAY, WEATHER, IS, SO];
  const passes = [];
  const sent = (tokens, more) => ({ ...WRITE, tokens, steps: 1, ...more });
  const resume = { resume: true };
  const other = text.with(2, SO);
  const asks = [sent(text), sent(text, resume), sent(other, resume), sent(text, resume), sent(other)];
  await talk([load(FILE), ...asks], (answer) => answer.op === "pass" && passes.push(answer));
  assert.deepEqual(
    passes.map(({ tokensRun }) => tokensRun),
    [4, 1, 2, 1, 4],
  );
  const said = passes.map((pass) => pass.said);
  assert.deepEqual([said[1], said[3], said[2]], [said[0], said[0], said[4]]);
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

test("the last token of a text is told so, for a letter of which no more comes", async () => {
  const { decodeStream } = Words.prototype;
  Words.prototype.decodeStream = () => (_, isLast) => (isLast ? "last" : "more");
  const passes = [];
  const hear = ({ op, said }) => op === "pass" && passes.push(said.text);
  const asks = [load(FILE), { do: "tokenize", text: "Today weather" }, { ...WRITE, tokens: [TODAY] }];
  const [, cut] = await talk(asks, hear).finally(() => Object.assign(Words.prototype, { decodeStream }));
  assert.deepEqual([cut.texts, passes], [["more", "last"], ["more", "last"]]); // prettier-ignore
});

test("five candidates are told, the chosen token among them however unlikely", async () => {
  const told = [];
  const hear = ({ op, said }) => op === "pass" && told.push(said);
  const hot = { ...WRITE, tokens: [TODAY], steps: 10, noEos: true, settings: { temperature: 9, seed: 0 } };
  await talk([load(FILE), hot], hear);
  for (const { top, probability } of told)
    assert.ok(top.length === 5 && top.some(([, , p]) => p === probability), JSON.stringify(top));
});

test("a chat template is read in a time that grows as it does", () => {
  const began = performance.now();
  chatPrompt("<|im_start|>system\n".repeat(20_000), "so?"); // 380 kB: beginning by beginning it takes 14 s
  assert.ok(performance.now() - began < 1000);
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
      const ranked = [...logits.keys()].sort((i, j) => logits[j] - logits[i] || i - j);
      assert.deepEqual(likeliest(logits, n), ranked.slice(0, n));
    }
});

test("where the Worker dies, each request that waits is told so", async () => {
  const workers = [];
  const stub = { postMessage() {}, terminate: () => workers.pop() };
  Object.assign(globalThis, { LIVE_WORKER: "", Worker: function () { return workers.push(stub) && stub; } }); // prettier-ignore
  const { startLive } = await import("../../helpers/stepper/js/live/start.ts");
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
