// config.json of Hugging Face checkpoints, as helpers/model/load/config.py reads it.

const SIZES = {
  nLayers: "num_hidden_layers",
  nHeads: "num_attention_heads",
  nKvHeads: "num_key_value_heads",
  headDim: "head_dim",
  hiddenSize: "hidden_size",
  intermediateSize: "intermediate_size",
  vocabSize: "vocab_size",
  maxSeqLen: "max_position_embeddings",
};

/** Sizes of a model; what is no Llama or Qwen2, or has sizes that do not fit, raises an error.
 * @param {any} told @returns {import("./protocol.js").Config} */
export function configFromJson(told) {
  if (!["llama", "qwen2"].includes(told.model_type))
    throw new RangeError(
      `the model is of kind ${told.model_type}; expected llama or qwen2: take another file`,
    );
  const { rope_scaling: scaling } = told;
  if (scaling && scaling.rope_type !== "llama3")
    throw new RangeError(`rope_scaling is ${scaling.rope_type}; expected llama3 or none: take another file`);
  /** @type {any} */
  const sizes = Object.fromEntries(Object.entries(SIZES).map(([ours, theirs]) => [ours, told[theirs]]));
  const config = {
    ...sizes,
    ropeTheta: told.rope_theta,
    ropeScaling: scaling && {
      factor: scaling.factor,
      lowFreqFactor: scaling.low_freq_factor,
      highFreqFactor: scaling.high_freq_factor,
      originalMaxSeqLen: scaling.original_max_position_embeddings,
    },
    normEps: told.rms_norm_eps,
    tied: told.tie_word_embeddings,
    qkvBias: told.model_type === "qwen2",
    qkNorm: false,
    nopeLayers: [],
    eosIds: [told.eos_token_id ?? []].flat(),
  };
  checkSizes(config);
  return config;
}

/** @param {import("./protocol.js").Config} config */
function checkSizes(config) {
  for (const name of /** @type {(keyof typeof SIZES)[]} */ (Object.keys(SIZES)))
    if (!(Number.isInteger(config[name]) && config[name] > 0))
      throw new RangeError(
        `${SIZES[name]} is ${config[name]}; expected a whole number over 0: take another file`,
      );
  for (const [name, value] of Object.entries({ rope_theta: config.ropeTheta, rms_norm_eps: config.normEps }))
    if (!(value > 0 && value < Infinity))
      throw new RangeError(`${name} is ${value}; expected a number over 0: take another file`);
  checkHeads(config);
}

/** @param {import("./protocol.js").Config} config */
export function checkHeads(config) {
  if (config.nHeads % config.nKvHeads || config.headDim % 2)
    throw new RangeError(
      `the model has ${config.nHeads} heads of ${config.headDim} numbers on ${config.nKvHeads} KV heads; expected a ` +
        "multiple of the KV heads, and an even number: take another file",
    );
}
