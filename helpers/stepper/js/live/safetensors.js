// A model's file for the page: weights in 16 or 32 bits, and as metadata its config.json and its words (.ci/halve.py).
import { configFromJson } from "./config.js";
import { FloatMatrix, HALVES } from "./matrix.js";
import { Words } from "./words.js";

/** @type {Record<string, Float32ArrayConstructor | Uint16ArrayConstructor | undefined>} */
const TYPES = { F32: Float32Array, F16: Uint16Array };

/** Raised for a file that cannot be read right: what was got, what was expected, what to do. */
export class FileError extends Error {}

/**
 * Open a file, whole; an error says what is wrong with it.
 * @param {ArrayBuffer} file @returns {import("./answer.js").Opened}
 */
export function openSafetensors(file) {
  const { header, start } = headerOf(file);
  const about = aboutModel(header);
  return {
    name: String(about.name),
    config: configFromJson(about.config),
    weights: (name) =>
      Object.hasOwn(header, name) ? tensor(name, header[name] ?? {}, file, start) : undefined,
    tokenizer: new Words(about.vocabulary),
    chatTemplate: null,
    bytes: file.byteLength,
  };
}

/** The header says of each tensor its type, shape and place in the data, which start behind it.
 * @param {ArrayBuffer} file */
function headerOf(file) {
  const size = file.byteLength < 8 ? 0 : Number(new DataView(file).getBigUint64(0, true));
  if (file.byteLength < 10 || size > file.byteLength - 8)
    throw new FileError(
      `the file has ${file.byteLength} bytes and its header asks for ${size}; expected a whole safetensors file: ` +
        "it is of another kind or cut off, fetch it again",
    );
  const header = parsed(new TextDecoder().decode(new Uint8Array(file, 8, size)));
  if (header) return { header, start: 8 + size };
  throw new FileError(
    "the file's header is no JSON; expected a safetensors file: it is damaged, fetch it again",
  );
}

/** What JSON says, or null where it is none. @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The model's name, config.json and words. @param {any} header */
function aboutModel(header) {
  const about = parsed(header.__metadata__?.model);
  const [words, expected] = [about?.vocabulary?.length, about?.config?.vocab_size];
  if (words && words === expected) return about;
  throw new FileError(
    `the file tells of a model with ${words} words; expected ${expected ?? "metadata with a config and a vocabulary"}: ` +
      "take another file, such as .ci/halve.py makes",
  );
}

/** One tensor in 32 bits. @param {string} name @param {any} told @param {ArrayBuffer} file @param {number} start */
function tensor(name, { dtype, shape, data_offsets: [from, to] = [] }, file, start) {
  const Numbers = TYPES[dtype];
  if (!Numbers) throw new FileError(`the tensor ${name} is ${dtype}; expected F16 or F32: take another file`);
  const nbytes = /** @type {number[]} */ ([])
    .concat(shape)
    .reduce((a, b) => a * b, Numbers.BYTES_PER_ELEMENT);
  if (!(from >= 0 && to - from === nbytes && start + to <= file.byteLength))
    throw new FileError(
      `the tensor ${name} of shape (${shape}) is to lie in bytes ${from} to ${to} of ` +
        `${file.byteLength - start}; expected ${nbytes} of them: the file is damaged or cut off, fetch it again`,
    );
  const stored = new Numbers(file.slice(start + from, start + to));
  const numbers =
    stored instanceof Float32Array ? stored : new Float32Array(stored).map((bits) => HALVES[bits]);
  if (!numbers.every(Number.isFinite))
    throw new FileError(
      `the tensor ${name} holds NaN or infinity; expected numbers: the file is damaged, fetch it again`,
    );
  return shape.length === 1 ? numbers : new FloatMatrix(numbers, shape);
}
