// GGUF files, as llama.cpp, Ollama and LM Studio have them, read as helpers/model/load/gguf.py does it. Weights stay in
// the file's blocks. What this decoder cannot do right is refused by name.
import { BlockMatrix, KINDS, OTHERS } from "./blocks.js";
import { checkSizes } from "./config.js";
import { ropeFrequencies } from "./decoder.js";
import { Stopped } from "./stop.js";
import { Tokenizer } from "./tokens.js";

/** @typedef {import("./protocol.js").Config} Config */
/** @typedef {import("./answer.js").Opened} Opened */
/** A number or a text of the metadata, or a list of them. @typedef {any} Value */
/** @typedef {{ shape: number[], number: number, begins: number }} Told */
/** @typedef {{ shape: number[], kind: import("./blocks.js").Kind, begins: number, nbytes: number }} Placed */

// Each part of a tensor's name, and that of Hugging Face checkpoints: blk.0.attn_q is model.layers.0.self_attn.q_proj.
/** @type {Record<string, any>} */
const PARTS = {
  __proto__: null,
  token_embd: "model.embed_tokens",
  output_norm: "model.norm",
  output: "lm_head",
  blk: "model.layers",
  attn_norm: "input_layernorm",
  attn_q: "self_attn.q_proj",
  attn_k: "self_attn.k_proj",
  attn_v: "self_attn.v_proj",
  attn_output: "self_attn.o_proj",
  ffn_norm: "post_attention_layernorm",
  ffn_gate: "mlp.gate_proj",
  ffn_up: "mlp.up_proj",
  ffn_down: "mlp.down_proj",
  weight: "weight",
  bias: "bias",
};
// Keys that make another function of the model, and the value with which they do not.
/** @type {Record<string, unknown>} */
const HARMLESS = {
  "rope.scaling.type": "none",
  "rope.scaling.factor": 1,
  "rope.scale_linear": 1,
  expert_count: 0,
  expert_used_count: 0,
  "attention.causal": true,
};
// Keys that are read, or say nothing about the numbers.
const READ =
  "block_count attention.head_count attention.head_count_kv attention.key_length attention.value_length " +
  "attention.sliding_window attention.layer_norm_rms_epsilon embedding_length feed_forward_length " +
  "context_length rope.dimension_count rope.freq_base vocab_size tensor_data_layout";
const ENDS = ["eos", "eot", "eom"]; // any of them ends a reply
const ROPE_FACTORS = "rope_freqs.weight";
// How DataView reads each kind of number, and how many bytes that takes.
/** @type {Record<number, [string, number]>} */
const NUMBERS = {
  0: ["Uint8", 1],
  1: ["Int8", 1],
  2: ["Uint16", 2],
  3: ["Int16", 2],
  4: ["Uint32", 4],
  5: ["Int32", 4],
  6: ["Float32", 4],
  7: ["Uint8", 1],
  10: ["BigUint64", 8],
  11: ["BigInt64", 8],
  12: ["Float64", 8],
};
const [COUNT, YES_OR_NO, TEXT, LIST, LONG_COUNT] = [4, 7, 8, 9, 10];
const [MAGIC, VERSIONS] = ["GGUF", [2, 3]];
const LONGEST = 2 ** 24; // bytes before the weights: half of that are a vocabulary of 128,000 and its merges

/** What stands before the weights, read from front to back. A length in it is believed only as far as the bytes go. */
class Header {
  /** @param {DataView} bytes */
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
  }

  /** Refuse what goes further than the bytes. @param {number} nbytes */
  checkLeft(nbytes) {
    const left = this.bytes.byteLength - this.at;
    if (nbytes > left)
      throw new Error(
        `${count(nbytes)} bytes of metadata are said to follow; expected at most ${count(left)}`,
      );
  }

  /** @param {number} kind @returns {number | boolean} */
  number(kind) {
    if (!(kind in NUMBERS)) throw new Error(`a value is of kind ${kind}; expected one from 0 to 12`);
    const [name, nbytes] = NUMBERS[kind];
    this.checkLeft(nbytes);
    const value = Number(/** @type {any} */ (this.bytes)[`get${name}`](this.at, true));
    this.at += nbytes;
    return kind === YES_OR_NO ? value !== 0 : value;
  }

  /** How many things stand next, each of at least so many bytes. @param {number} nbytes */
  count(nbytes, kind = LONG_COUNT) {
    const n = Number(this.number(kind));
    this.checkLeft(n * nbytes);
    return n;
  }

  text() {
    const n = this.count(1);
    this.at += n;
    return new TextDecoder("utf-8", { fatal: true }).decode(new DataView(this.bytes.buffer, this.at - n, n));
  }

  /** The next value, which stands behind its kind: a number, a text or a list. @returns {Value} */
  value() {
    const kind = this.number(COUNT);
    if (kind !== LIST) return kind === TEXT ? this.text() : this.number(Number(kind));
    const of = Number(this.number(COUNT));
    const n = this.count(of === TEXT ? 8 : 1);
    return Array.from({ length: n }, () => (of === TEXT ? this.text() : this.number(of)));
  }

  /** The next tensor's name, and what is said of it: its axes, the last one first, its kind, where it begins.
   * @returns {[string, Told]} */
  tensor() {
    const name = this.text();
    const shape = Array.from({ length: this.count(8, COUNT) }, () =>
      Number(this.number(LONG_COUNT)),
    ).reverse();
    return [name, { shape, number: Number(this.number(COUNT)), begins: Number(this.number(LONG_COUNT)) }];
  }
}

/** @param {number} n */
const count = (n) => n.toLocaleString("en");

/** By key; a key that stands twice is refused. @param {number} n @param {() => [string, any]} next */
function byKey(n, next) {
  const all = new Map();
  for (let i = 0; i < n; i++) {
    const [key, value] = next();
    if (all.has(key)) throw new Error(`the key ${key} stands twice`);
    all.set(key, value);
  }
  return all;
}

/** @param {Header} header @param {number} size bytes of the file */
function readHeader(header, size) {
  const begins = String.fromCharCode(...[0, 1, 2, 3].map(() => Number(header.number(0))));
  const version = Number(header.number(COUNT));
  if (begins !== MAGIC || !VERSIONS.includes(version))
    throw new Error(`it begins with ${JSON.stringify(begins)} ${version}; expected ${MAGIC}, version 2 or 3`);
  const nTensors = header.count(24);
  const nKeys = header.count(12);
  const metadata = byKey(nKeys, () => [header.text(), header.value()]);
  const told = byKey(nTensors, () => header.tensor());
  return { metadata, tensors: placed(told, header.at, metadata.get("general.alignment") ?? 32, size) };
}

/**
 * Where each tensor lies. They fill the file, one after another, so a damaged shape, kind or beginning shows.
 * @param {Map<string, Told>} told @param {number} at end of the header
 * @param {number} alignment @param {number} size @returns {Map<string, Placed>}
 */
function placed(told, at, alignment, size) {
  /** @param {number} place */
  const aligned = (place) => Math.ceil(place / alignment) * alignment;
  const start = aligned(at);
  let end = start;
  const tensors = new Map();
  for (const [name, { shape, number, begins }] of told) {
    if (begins !== aligned(end) - start)
      throw new Error(
        `the tensor ${name} begins at ${count(begins)}; expected ${count(aligned(end) - start)}`,
      );
    const kind = KINDS[number];
    if (!kind)
      throw new Error(
        `the tensor ${name} is of kind ${OTHERS[number] ?? number}, which is not supported; expected one of ` +
          Object.values(KINDS)
            .map((known) => known.name)
            .join(", "),
      );
    const numbers = shape.reduce((product, n) => product * n, 1);
    if (shape.length > 2 || !numbers || !shape.length || shape[shape.length - 1] % kind.numbers)
      throw new Error(
        `the tensor ${name} is of shape (${shape}); expected rows of ${kind.numbers}s of numbers`,
      );
    const nbytes = (numbers / kind.numbers) * kind.nbytes;
    tensors.set(name, { shape, kind, begins: start + begins, nbytes });
    end = start + begins + nbytes;
  }
  if (size < end || size > aligned(end))
    throw new Error(`it has ${count(size)} bytes; expected ${count(end)}, where its last tensor ends`);
  return tensors;
}

/** Translate the metadata; refuse what makes another function of the model. @param {Map<string, Value>} metadata
 * @param {boolean} tied @returns {Config} */
function configOf(metadata, tied) {
  const kind = metadata.get("general.architecture");
  if (kind !== "llama" && kind !== "qwen2")
    throw new Error(`the architecture is ${kind}; expected llama or qwen2`);
  refuseUnsupported(metadata, kind);
  /** @param {string} key @param {number} [missing] */
  const get = (key, missing) => metadata.get(`${kind}.${key}`) ?? missing;
  const ends = ENDS.map((end) => metadata.get(`tokenizer.ggml.${end}_token_id`));
  const [nHeads, hiddenSize, length] = ["attention.head_count", "embedding_length", "context_length"].map(
    (key) => get(key),
  );
  const config = {
    nLayers: get("block_count"),
    nHeads,
    nKvHeads: get("attention.head_count_kv", nHeads),
    headDim: get("attention.key_length", hiddenSize / nHeads),
    hiddenSize,
    intermediateSize: get("feed_forward_length"),
    vocabSize: get("vocab_size", metadata.get("tokenizer.ggml.tokens")?.length),
    maxSeqLen: Math.min(length, get("attention.sliding_window", length)), // within a window it is the same function
    ropeTheta: get("rope.freq_base"),
    ropeScaling: null,
    normEps: get("attention.layer_norm_rms_epsilon"),
    tied,
    qkvBias: kind === "qwen2",
    eosIds: [...new Set(ends.filter((id) => id !== undefined))],
  };
  checkSizes(config);
  for (const [key, value, low, high] of [
    ["rope.freq_base", config.ropeTheta, 10, 1e12],
    ["attention.layer_norm_rms_epsilon", config.normEps, 1e-12, 0.01],
  ])
    if (value < low || value > high) throw new Error(`${key} is ${value}; expected ${low} to ${high}`);
  for (const key of ["attention.value_length", "rope.dimension_count"])
    if (get(key, config.headDim) !== config.headDim)
      throw new Error(`${key} is ${get(key)}; expected ${config.headDim}, as long as a key`);
  const wrong = config.eosIds.find((id) => !(Number.isInteger(id) && id >= 0 && id < config.vocabSize));
  if (wrong !== undefined)
    throw new Error(`token ${wrong} is to end a text; expected 0 to ${config.vocabSize - 1}`);
  return config;
}

/** Refuse metadata of the model that are not known here, or make another function of it.
 * @param {Map<string, Value>} metadata @param {string} kind */
function refuseUnsupported(metadata, kind) {
  for (const [key, value] of metadata) {
    const name = key.startsWith(`${kind}.`) ? key.slice(kind.length + 1) : null;
    if (name !== null && !READ.split(" ").includes(name) && HARMLESS[name] !== value)
      throw new Error(`${key} is ${value}, which is not supported`);
  }
  const parts = metadata.get("split.count") ?? 1;
  if (parts !== 1) throw new Error(`it is one of ${parts} parts; expected a model in one file`);
}

/** Llama 3.1's scaling, of which a file holds what it makes of each pair: a factor. All models of Llama 3.1 to 3.3
 * differ in `factor` alone, which the slowest pair shows. @param {Float32Array} factors @param {Config} config */
function scalingOf(factors, config) {
  const factor = Math.max(...factors);
  const ropeScaling = { factor, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 8192 };
  const [plain, scaled] = [ropeFrequencies(config), ropeFrequencies({ ...config, ropeScaling })];
  const expected = plain.map((frequency, i) => frequency / scaled[i]);
  if (factors.length !== expected.length || expected.some((x, i) => !(Math.abs(x - factors[i]) <= 1e-4 * x)))
    throw new Error(`${ROPE_FACTORS} is not that of Llama 3.1: this kind of rotation is not supported`);
  return ropeScaling;
}

/** A tensor's name in Hugging Face checkpoints. @param {string} name */
function renamed(name) {
  const parts = name.split(".").map((part) => (/^\d+$/.test(part) ? part : PARTS[part]));
  if (name !== ROPE_FACTORS && parts.includes(undefined))
    throw new Error(`the tensor ${name} is unknown; expected names such as blk.0.attn_q.weight`);
  return name === ROPE_FACTORS ? name : parts.join(".");
}

/**
 * Put the rows of a projection, (heads · D, C), back into the order of pairs (i, i + D / 2): llama.cpp stores those of
 * a Llama as (2i, 2i + 1). Left like that the model is fluent for some words.
 * @param {Uint8Array} rows @param {number} F @param {number} D
 */
function inHalves(rows, F, D) {
  const nbytes = rows.length / F;
  const put = new Uint8Array(rows.length);
  for (let row = 0; row < F; row++) {
    const within = row % D;
    const from = row - within + (within < D / 2 ? 2 * within : 2 * within - D + 1);
    put.set(rows.subarray(from * nbytes, (from + 1) * nbytes), row * nbytes);
  }
  return put;
}

/** A matrix in its blocks, or a vector widened. @param {string} name @param {Placed} placed @param {Uint8Array} bytes */
function tensorOf(name, { shape, kind }, bytes) {
  const [C, F = 1] = [...shape].reverse();
  const matrix = new BlockMatrix(kind, new DataView(bytes.buffer), [F, C]);
  const zeros = new Float32Array(F);
  matrix.times(new Float32Array(C), 1, zeros); // NaN where a number is NaN or infinite
  if (!zeros.every(Number.isFinite))
    throw new Error(`the tensor ${name} holds NaN or infinity; expected numbers`);
  if (shape.length > 1) return matrix;
  const wide = new Float32Array(C);
  matrix.row(0, wide);
  return wide;
}

/**
 * Open a file that a reader chose; `tell` hears how far it is, and may raise Stopped.
 * @param {Blob | ArrayBuffer} file @param {import("./answer.js").Tell} [tell] @returns {Promise<Opened>}
 * @throws {Error} what is damaged or not supported, by name, and what to do.
 */
export async function openGguf(file, tell = async () => {}) {
  try {
    return await opened(new Blob([file]), tell);
  } catch (error) {
    if (error instanceof Stopped) throw error;
    const told = error instanceof Error ? error.message : error;
    throw new Error(
      `The GGUF file cannot be read: ${told}. Fetch it again if it may be damaged or cut off, or take another: a ` +
        "Llama or a Qwen2, such as SmolLM2-135M-Instruct.",
      { cause: error },
    );
  }
}

/** @param {Blob} blob @param {import("./answer.js").Tell} tell @returns {Promise<Opened>} */
async function opened(blob, tell) {
  const bytes = new DataView(await blob.slice(0, LONGEST).arrayBuffer());
  const { metadata, tensors } = readHeader(new Header(bytes), blob.size);
  const config = configOf(metadata, !tensors.has("output.weight"));
  const tokenizer = new Tokenizer(metadata);
  checkMemory(blob.size);
  const llama = metadata.get("general.architecture") === "llama";
  const weights = new Map();
  for (const [name, placed] of tensors) {
    const { begins, nbytes, shape } = placed;
    const stored = new Uint8Array(await blob.slice(begins, begins + nbytes).arrayBuffer());
    const paired = llama && /attn_[qk]\.weight$/.test(name) && shape[0] % config.headDim === 0;
    const rows = paired ? inHalves(stored, shape[0], config.headDim) : stored;
    weights.set(renamed(name), tensorOf(name, placed, rows));
    await tell(begins + nbytes);
  }
  const factors = weights.get(ROPE_FACTORS);
  if (factors) config.ropeScaling = scalingOf(factors, config);
  return {
    name: metadata.get("general.name") ?? "a model without a name",
    config,
    weights: (name) => weights.get(name),
    tokenizer,
    chatTemplate: metadata.get("tokenizer.chat_template") ?? null,
    bytes: blob.size,
  };
}

/** Refuse what takes more than half of the memory that the browser tells of; where it tells nothing, 2 GiB.
 * @param {number} nbytes */
function checkMemory(nbytes) {
  const { deviceMemory = 4 } = /** @type {any} */ (globalThis.navigator ?? {});
  const most = deviceMemory * 2 ** 29;
  if (nbytes > most)
    throw new Error(
      `it has ${count(nbytes)} bytes; expected at most ${count(most)}, half of this machine's memory`,
    );
}
