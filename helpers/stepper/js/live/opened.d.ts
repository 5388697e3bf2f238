// What a model's file has to give once it is open, whatever its format.
import type { Weights } from "./decoder.ts";
import type { Config } from "./protocol";

/** What a token adds to the text before it; after the last one nothing is waited for. */
export type Adds = (id: number, isLast?: boolean) => string;
/** A model's file, opened: what a kind of file has to give. Of tokens one text by itself, or what follows on another. */
export type Opened = {
  name: string;
  config: Config;
  weights: Weights;
  tokenizer: {
    encode: (text: string) => number[];
    text: (id: number) => string;
    decodeStream: () => Adds;
    vocabulary: string[] | null;
  };
  chatTemplate: string | null;
  bytes: number;
};

/** After each part of a file, how many of its bytes are read. */
export type Tell = (done: number) => Promise<void>;
