// GGUF files, as llama.cpp, Ollama and LM Studio use them, opened as helpers/model/load/gguf.py does it. Weights stay in
// the file's blocks. What this decoder cannot run correctly is refused by name, before any weight is read.
import { BlockMatrix, KINDS, OTHERS, type Kind } from "./blocks.ts";
import { Decoder, ropeFrequencies } from "./decoder.ts";
import { between, count, COUNT, idOf, LONGEST, NATURAL, readHeader, shown, TEXT, TEXTS } from "./metadata.ts";
import { Stopped } from "./stop.ts";
import { Tokenizer } from "./tokens.ts";
import type { Config } from "./protocol";
import type { Opened, Tell } from "./opened";
import type { Metadata, Told } from "./metadata.ts";

type Placed = { shape: number[]; kind: Kind; begins: number; nbytes: number };

// How each architecture differs from a Llama. `paired`: rows of q and k are stored in pairs, as llama.cpp's rotation
// needs them. `nope`: every such layer does not rotate; no key says so, llama.cpp takes it for granted.
const ARCHITECTURES: Record<
  string,
  { paired?: boolean; qkvBias?: boolean; qkNorm?: boolean; nope?: number }
> = {
  llama: { paired: true },
  qwen2: { qkvBias: true },
  qwen3: { qkNorm: true },
  smollm3: { paired: true, nope: 4 },
};
// Parts of a tensor's name in Hugging Face checkpoints, and here: model.layers.0.self_attn.q_proj is blk.0.attn_q.
const PARTS: Record<string, string> = {
  "model.embed_tokens": "token_embd",
  "model.norm": "output_norm",
  lm_head: "output",
  "model.layers": "blk",
  input_layernorm: "attn_norm",
  "self_attn.q_proj": "attn_q",
  "self_attn.k_proj": "attn_k",
  "self_attn.v_proj": "attn_v",
  "self_attn.o_proj": "attn_output",
  "self_attn.q_norm": "attn_q_norm",
  "self_attn.k_norm": "attn_k_norm",
  post_attention_layernorm: "ffn_norm",
  "mlp.gate_proj": "ffn_gate",
  "mlp.up_proj": "ffn_up",
  "mlp.down_proj": "ffn_down",
};
// Values with which a key changes nothing: 0 (llama.cpp's for "not set") or false unless it is here.
const MULTIPLIERS = "logit_scale residual_scale embedding_scale rope.scale_linear rope.scaling.factor";
const NEUTRAL: Record<string, unknown[]> = {
  ...Object.fromEntries(MULTIPLIERS.split(" ").map((name) => [name, [0, 1]])),
  "rope.scaling.type": ["linear", "none"], // linear by a factor, which has to be 1
  "rope.scaling.attn_factor": [1],
  "attention.causal": [true],
};
// Keys that are read, or that do not change the model's computation.
const READ =
  "block_count attention.head_count attention.head_count_kv attention.key_length attention.value_length " +
  "attention.sliding_window attention.layer_norm_rms_epsilon embedding_length feed_forward_length " +
  "context_length rope.dimension_count rope.freq_base vocab_size tensor_data_layout " +
  "rope.scaling.original_context_length rope.scaling.finetuned";
const ROPE_THETA = 10000; // llama.cpp's for a file without one
const ENDS = ["eos", "eot", "eom"]; // any of them ends a reply
const ROPE_FACTORS = "rope_freqs.weight";

/** A tensor's name in the file, from that in Hugging Face checkpoints. */
const inFile = (name: string) =>
  Object.entries(PARTS).reduce((text, [theirs, here]) => text.replace(theirs, here), name);

/**
 * Where each tensor is stored. They fill the file, one after another, so a damaged shape, type or offset shows.
 * `at`: the end of the header.
 */
function placed(told: Map<string, Told>, at: number, alignment: number, size: number): Map<string, Placed> {
  const aligned = (place: number) => Math.ceil(place / alignment) * alignment;
  const start = aligned(at);
  let end = start;
  const tensors = new Map();
  for (const [name, { shape, number, begins }] of told) {
    if (begins !== aligned(end) - start)
      throw new Error(
        `the tensor ${name} begins at byte ${count(begins)} of the weights; expected ` +
          `${count(aligned(end) - start)}, where the one before it ends`,
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
        `the tensor ${name} is of shape (${shape.join(", ")}); expected one axis or two, with rows of ` +
          (kind.numbers > 1 ? `a multiple of ${kind.numbers} numbers` : "one number at least"),
      );
    const nbytes = (numbers / kind.numbers) * kind.nbytes;
    tensors.set(name, { shape, kind, begins: start + begins, nbytes });
    end = start + begins + nbytes;
  }
  if (size < end || size > aligned(end))
    throw new Error(`it has ${count(size)} bytes; expected ${count(end)}, where its last tensor ends`);
  return tensors;
}

/** Translate the metadata; refuse what changes the model's computation. */
function configOf(metadata: Metadata, tensors: Map<string, Placed>): Config {
  const kind = metadata.get("general.architecture", TEXT);
  if (!Object.hasOwn(ARCHITECTURES, kind))
    throw new Error(
      `the model's architecture is ${shown(kind)}; expected one of ${Object.keys(ARCHITECTURES).join(", ")}`,
    );
  refuseUnsupported(metadata, kind);
  const size = (key: string, missing?: number) => metadata.get(`${kind}.${key}`, COUNT, missing);
  const [nLayers, nHeads, hiddenSize, length] = [
    "block_count",
    "attention.head_count",
    "embedding_length",
    "context_length",
  ].map((key) => size(key));
  const window = metadata.get(`${kind}.attention.sliding_window`, NATURAL, 0);
  const vocabSize = size("vocab_size", metadata.get("tokenizer.ggml.tokens", TEXTS).length);
  const { qkvBias = false, qkNorm = false, nope = Infinity } = ARCHITECTURES[kind];
  const ends = ENDS.map((end) => metadata.get(`tokenizer.ggml.${end}_token_id`, idOf(vocabSize), null));
  const config = {
    nLayers,
    nHeads,
    nKvHeads: size("attention.head_count_kv", nHeads),
    headDim: size("attention.key_length", hiddenSize / nHeads),
    hiddenSize,
    intermediateSize: size("feed_forward_length"),
    vocabSize,
    maxSeqLen: Math.min(length, window || length), // within a window attention is the same
    ropeTheta: metadata.get(`${kind}.rope.freq_base`, between(10, 1e12), ROPE_THETA),
    ropeScaling: null,
    normEps: metadata.get(`${kind}.attention.layer_norm_rms_epsilon`, between(1e-12, 0.01)),
    tied: !tensors.has("output.weight"),
    qkvBias,
    qkNorm,
    nopeLayers: Array.from({ length: Math.min(nLayers, tensors.size) / nope }, (_, i) => (i + 1) * nope - 1),
    eosIds: [...new Set(ends.filter((id) => id !== null))],
  };
  const { nKvHeads, headDim } = config;
  if (nHeads % nKvHeads || headDim % 2)
    throw new Error(
      `the model has ${nHeads} heads of ${headDim} numbers on ${nKvHeads} KV heads; expected a multiple of the KV ` +
        "heads, and an even number",
    );
  for (const key of ["attention.value_length", "rope.dimension_count"]) {
    const got = size(key, headDim);
    if (got !== headDim)
      throw new Error(`${kind}.${key} is ${got}; expected ${headDim}, the length of a key`);
  }
  return config;
}

/** Refuse metadata of the model that are unknown here, or change its computation. */
function refuseUnsupported(metadata: Metadata, kind: string) {
  for (const [key, value] of metadata.values) {
    const name = key.startsWith(`${kind}.`) ? key.slice(kind.length + 1) : null;
    if (name === null || READ.split(" ").includes(name)) continue;
    const neutral = NEUTRAL[name] ?? [false, 0];
    if (!neutral.includes(value))
      throw new Error(
        `${key} is ${shown(value)}, which is not supported; expected ${neutral[neutral.length - 1]}, or no such key`,
      );
  }
  const parts = metadata.get("split.count", COUNT, 1);
  if (parts !== 1) throw new Error(`it is one of ${parts} parts; expected a model in one file`);
}

/**
 * Refuse tensors that are missing, of another shape, or not used: a model made of the others would compute something
 * else.
 */
function checkTensors(kind: string, config: Config, tensors: Map<string, Placed>) {
  const used = new Set([ROPE_FACTORS]);
  const find = (name: string) => {
    used.add(inFile(name));
    return tensors.get(inFile(name));
  };
  new Decoder(config, find as any, inFile); // asks for what it needs, by name and shape
  const unused = [...tensors.keys()].find((name) => !used.has(name));
  if (unused)
    throw new Error(
      `it holds the tensor ${unused}; expected only those of a ${kind} of ${config.nLayers} layers: without it the ` +
        "model would be another",
    );
}

/** Llama 3.1's scaling, which a file stores as one factor for each pair. All models of Llama 3.1 to 3.3 differ in
 * `factor` alone, which is that of the slowest pair. */
function scalingOf(factors: Float32Array, config: Config) {
  const factor = Math.max(...factors);
  const ropeScaling = { factor, lowFreqFactor: 1, highFreqFactor: 4, originalMaxSeqLen: 8192 };
  const [plain, scaled] = [ropeFrequencies(config), ropeFrequencies({ ...config, ropeScaling })];
  const expected = plain.map((frequency, i) => frequency / scaled[i]);
  if (factors.length !== expected.length || expected.some((x, i) => !(Math.abs(x - factors[i]) <= 1e-4 * x)))
    throw new Error(`${ROPE_FACTORS} is not that of Llama 3.1: this kind of rotation is not supported`);
  return ropeScaling;
}

/**
 * Put the rows of a projection, (heads · D, C), back into the order of pairs (i, i + D / 2): llama.cpp stores those of
 * a Llama as (2i, 2i + 1). In that order the model would be fluent for a few words only.
 */
function inHalves(rows: Uint8Array, F: number, D: number) {
  const nbytes = rows.length / F;
  const put = new Uint8Array(rows.length);
  for (let row = 0; row < F; row++) {
    const within = row % D;
    const from = row - within + (within < D / 2 ? 2 * within : 2 * within - D + 1);
    put.set(rows.subarray(from * nbytes, (from + 1) * nbytes), row * nbytes);
  }
  return put;
}

/** A matrix in its blocks, or a vector widened. */
function tensorOf(name: string, { shape, kind }: Placed, bytes: Uint8Array) {
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
 * Open a file that a reader chose; `tell` hears how far it is, and may raise Stopped. An
 * error says what is damaged or not supported, by name, and what to do.
 */
export async function openGguf(file: Blob | ArrayBuffer, tell: Tell = async () => {}): Promise<Opened> {
  try {
    return await opened(new Blob([file]), tell);
  } catch (error) {
    if (error instanceof Stopped) throw error;
    const told = error instanceof Error ? error.message : error;
    throw new Error(
      `The GGUF file cannot be read: ${told}. Fetch it again if it may be damaged or cut off, or take another: a ` +
        "Llama, Qwen2, Qwen3 or SmolLM3, such as SmolLM2-135M-Instruct.",
      { cause: error },
    );
  }
}

async function opened(blob: Blob, tell: Tell): Promise<Opened> {
  const bytes = new DataView(await blob.slice(0, LONGEST).arrayBuffer());
  const { metadata, told, end } = readHeader(bytes, blob.size);
  const tensors = placed(told, end, metadata.get("general.alignment", COUNT, 32), blob.size);
  const config = configOf(metadata, tensors);
  const name = metadata.get("general.name", TEXT, "without a name");
  const chatTemplate = metadata.get("tokenizer.chat_template", TEXT, null);
  const tokenizer = new Tokenizer(metadata);
  const kind = metadata.get("general.architecture", TEXT);
  checkTensors(kind, config, tensors);
  checkMemory(blob.size);
  const { paired } = ARCHITECTURES[kind];
  const weights = new Map();
  for (const [name, placed] of tensors) {
    const { begins, nbytes, shape } = placed;
    const stored = new Uint8Array(await blob.slice(begins, begins + nbytes).arrayBuffer());
    const rows =
      paired && /attn_[qk]\.weight$/.test(name) ? inHalves(stored, shape[0], config.headDim) : stored;
    weights.set(name, tensorOf(name, placed, rows));
    await tell(begins + nbytes);
  }
  const factors = weights.get(ROPE_FACTORS);
  if (factors) config.ropeScaling = scalingOf(factors, config);
  return {
    ...{ name, config, tokenizer, chatTemplate },
    weights: (name) => weights.get(inFile(name)),
    bytes: blob.size,
  };
}

/** Refuse what takes more than half of the memory that the browser reports; if it reports none, 2 GiB. */
function checkMemory(nbytes: number) {
  const { deviceMemory = 4 } = (globalThis.navigator ?? {}) as any;
  const most = deviceMemory * 2 ** 29;
  if (nbytes > most)
    throw new Error(
      `it has ${count(nbytes)} bytes; expected at most ${count(most)}, half of this machine's memory`,
    );
}
