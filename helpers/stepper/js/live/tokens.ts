// Byte-level BPE by the metadata of a GGUF file, as helpers/model/load/tokenizer.py has it from a library. The one for
// JavaScript is of 36 kB and wants a tokenizer.json first, which to make of these metadata takes as many lines.
import { FLAG, idOf, NUMBERS, shown, TEXT, TEXTS, type Metadata } from "./metadata.ts";
import type { Adds } from "./opened";

const LLAMA3 = ["llama-bpe", "llama3", "llama-v3"];
const LIKE_LLAMA3 = [...LLAMA3, "smaug-bpe"]; // and SmolLM3's, which puts nothing before a text
const SPACES = String.raw`\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+`; // \s is another set
const GPT2 = String.raw`'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|${SPACES}`;
/** How Llama 3 and Qwen2 cut a text into words; they differ in how many digits stay together. */
const wordsOf = (digits: string) =>
  String.raw`'(?:[sSſtTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|${digits}` +
  String.raw`| ?[^\p{White_Space}\p{L}\p{N}]+[\r\n]*|\p{White_Space}*[\r\n]+|${SPACES}`;
/** What a text is cut into, one after the other, by llama.cpp's name for it. */
const CUTS: Record<string, string[]> = {
  "gpt-2": [GPT2],
  smollm: [String.raw`\p{N}|\P{N}+`, GPT2],
  qwen2: [wordsOf(String.raw`\p{N}`)],
  ...Object.fromEntries(LIKE_LLAMA3.map((name) => [name, [wordsOf(String.raw`\p{N}{1,3}`)]])),
};
const WHOLE = [3, 4]; // kinds of token that are never cut: control tokens, and a user's

/** The letter that stands for each byte: itself where it can be seen, else one of those from 256 on. */
const LETTERS = (() => {
  let next = 256;
  const seen = (byte: number) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(seen(byte) ? byte : next++));
})();
const BYTES = new Map(LETTERS.map((letter, byte) => [letter, byte]));

export class Tokenizer {
  declare cuts: RegExp[];
  declare composed: boolean;
  declare wordsFirst: boolean;
  declare tokens: string[];
  declare ids: Map<string, number>;
  declare ranks: Map<string, number>;
  declare whole: RegExp;
  declare before: number[];
  declare after: number[];
  declare vocabulary: null;

  /** An error says what is missing in the metadata, wrong or not supported. */
  constructor(metadata: Metadata) {
    const get: Metadata["get"] = (key, kind, missing) => metadata.get(`tokenizer.ggml.${key}`, kind, missing);
    const [model, cut] = [get("model", TEXT), get("pre", TEXT, "default")];
    if (model !== "gpt2")
      throw new Error(
        `tokenizer.ggml.model is ${shown(model)}; expected gpt2, a tokenizer of byte-level BPE`,
      );
    if (!Object.hasOwn(CUTS, cut))
      throw new Error(
        `tokenizer.ggml.pre, how a text is cut into words, is ${shown(cut)}; expected ${Object.keys(CUTS).join(", ")}`,
      );
    this.cuts = CUTS[cut].map((pattern) => new RegExp(pattern, "gu"));
    this.composed = cut === "qwen2";
    this.wordsFirst = LIKE_LLAMA3.includes(cut);
    this.tokens = get("tokens", TEXTS);
    this.ids = new Map(this.tokens.map((token, id) => [token, id]));
    this.ranks = new Map(get("merges", TEXTS).map((pair, rank) => [pair, rank]));
    for (const pair of this.ranks.keys())
      if (!this.ids.has(pair.replace(" ", "")))
        throw new Error(
          `tokenizer.ggml.merges joins ${shown(pair)}; expected a token of tokenizer.ggml.tokens`,
        );
    const kinds = get("token_type", NUMBERS, []);
    this.whole = anyOf(this.tokens.filter((_, id) => WHOLE.includes(kinds[id])));
    const [bos, eos] = ["bos", "eos"].map((end) => get(`${end}_token_id`, idOf(this.tokens.length), null));
    this.before = get("add_bos_token", FLAG, LLAMA3.includes(cut)) && bos !== null ? [bos] : [];
    this.after = get("add_eos_token", FLAG, false) && eos !== null ? [eos] : [];
    this.vocabulary = null; // too long to be told
  }

  /** The ids of a text; an error names what no piece has. */
  encode(text: string) {
    const parts = text.split(this.whole); // between the tokens that are never cut
    const ids = parts.flatMap((part, i) => (i % 2 ? [this.ids.get(part)] : this.words(part)));
    return [...this.before, ...ids, ...this.after] as number[];
  }

  words(text: string) {
    let words = [this.composed ? text.normalize("NFC") : text];
    for (const cut of this.cuts) words = words.flatMap((word) => word.match(cut) ?? []);
    return words.flatMap((word) => this.pieces(word));
  }

  /** The ids of a word, of whose pieces the pair is joined that was learned first, until none is known.
   * Source: Sennrich et al. 2016, arXiv:1508.07909. */
  pieces(word: string) {
    const letters = Array.from(new TextEncoder().encode(word), (byte) => LETTERS[byte]);
    let pieces = this.wordsFirst && this.ids.has(letters.join("")) ? [letters.join("")] : letters;
    for (let first; (first = this.firstLearned(pieces)) < Infinity;) pieces = this.joined(pieces, first);
    return pieces.map((piece) => {
      const id = this.ids.get(piece);
      if (id === undefined)
        throw new Error(`“${word}” has a character that the model does not know; expected another`);
      return id;
    });
  }

  rank(pieces: string[], i: number) {
    return this.ranks.get(`${pieces[i]} ${pieces[i + 1]}`) ?? Infinity;
  }

  firstLearned(pieces: string[]) {
    return pieces.reduce((least, _, i) => Math.min(least, this.rank(pieces, i)), Infinity);
  }

  joined(pieces: string[], rank: number) {
    const joined = [];
    for (let i = 0; i < pieces.length; i++)
      joined.push(this.rank(pieces, i) === rank ? pieces[i] + pieces[++i] : pieces[i]);
    return joined;
  }

  /** A token's own bytes: of text, of a part of a letter. None where the model has more tokens than the vocabulary. */
  bytes(id: number) {
    const piece = this.tokens[id] ?? "";
    const bytes = Array.from(piece, (letter) => BYTES.get(letter) ?? NaN);
    return bytes.includes(NaN) ? new TextEncoder().encode(piece) : Uint8Array.from(bytes);
  }

  /** A token's own text; the parts of a letter by their bytes: <0xE6>. */
  text(id: number) {
    const bytes = this.bytes(id);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      const hex = (byte: number) => byte.toString(16).toUpperCase();
      return Array.from(bytes, (byte) => (byte < 128 ? String.fromCharCode(byte) : `<0x${hex(byte)}>`)).join(
        "",
      );
    }
  }

  /** What each token adds to a text, one after the other: a letter that several share comes with its last part. */
  decodeStream(): Adds {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return (id, isLast) => decoder.decode(this.bytes(id), { stream: !isLast });
  }
}

/** What finds any of these texts, the longest first, and keeps it where it splits. */
function anyOf(texts: string[]) {
  const longestFirst = [...texts].sort((a, b) => b.length - a.length);
  return new RegExp(
    `(${longestFirst.map((text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")).join("|") || "(?!)"})`,
    "u",
  );
}

const SYSTEM = 4000; // characters of what the system says, at most: as many as a reader may write

/**
 * The text to tokenize for a question, up to where the reply begins: ChatML, as SmolLM2 and Qwen2 have it, with what
 * the template has the system say. A template is a program, by whoever made the file: it is read, not run.
 */
export function chatPrompt(template: string | null, question: string) {
  if (!template?.includes("<|im_start|>"))
    throw new Error(
      "the model has no chat template, or one of another kind; expected ChatML: write a text to go on from",
    );
  const begun = template.matchAll(/<\|im_start\|>system(?:\n|\\n)([^'{}]*?)(<\|im_end\|>|['{}]|$)/g);
  const said = [...begun].find(([, , end]) => end === "<|im_end|>")?.[1];
  if (said && said.length > SYSTEM)
    throw new Error(
      `the model's chat template puts ${said.length.toLocaleString("en")} characters before each question; expected at ` +
        `most ${SYSTEM.toLocaleString("en")}: write a text to go on from`,
    );
  const system = said === undefined ? "" : `<|im_start|>system\n${said}<|im_end|>\n`;
  return `${system}<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`;
}
