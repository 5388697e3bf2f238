// The shipped model's file for the page: weights in 16 bits, and as metadata its config.json and its words
// (tools/halve.py). It comes with the page, so nothing in it is damaged.
import { FloatMatrix, HALVES } from "./matrix.ts";
import { Words } from "./words.ts";
import type { Config } from "./protocol";
import type { Opened } from "./opened";

/** Sizes of a Llama out of its config.json, as helpers/model/load/config.py reads it. */
const configOf = (told: any): Config => ({
  nLayers: told.num_hidden_layers,
  nHeads: told.num_attention_heads,
  nKvHeads: told.num_key_value_heads,
  headDim: told.head_dim,
  hiddenSize: told.hidden_size,
  intermediateSize: told.intermediate_size,
  vocabSize: told.vocab_size,
  maxSeqLen: told.max_position_embeddings,
  ropeTheta: told.rope_theta,
  ropeScaling: null,
  normEps: told.rms_norm_eps,
  tied: told.tie_word_embeddings,
  qkvBias: false,
  qkNorm: false,
  nopeLayers: [],
  eosIds: [told.eos_token_id].flat(),
});

/** Open the file: the length of a header, the header, which says where each tensor lies behind it, and those. */
export function openSafetensors(file: ArrayBuffer): Opened {
  const start = 8 + Number(new DataView(file).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 8, start - 8)));
  const { name, config, vocabulary } = JSON.parse(header.__metadata__.model);
  /** One tensor in 32 bits. */
  const weights = (name: string) => {
    const { shape, data_offsets: ends } = header[name];
    const [from, to] = ends.map((end: number) => start + end);
    const numbers = Float32Array.from(new Uint16Array(file.slice(from, to)), (bits) => HALVES[bits]);
    return shape.length === 1 ? numbers : new FloatMatrix(numbers, shape);
  };
  const about = { name, config: configOf(config), tokenizer: new Words(vocabulary) };
  return { ...about, weights, chatTemplate: null, bytes: file.byteLength };
}
