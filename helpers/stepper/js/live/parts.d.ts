// What the parts of a live view are given: by the shipped model's view, and by a reader's own model.
import type { ButtonHTMLAttributes } from "preact";
import type { Card, Model as Costed } from "../cost.ts";
import type { Answer, Ask, Config, Settings } from "./protocol";
import type { Talk } from "./talk.ts";
import type { Lane } from "./writing.ts";
import type { Words } from "./words.ts";

/** A token of the text, or one that came out. */
export interface Token {
  id: number;
  text: string;
}

/** A text that a model goes on with, as far as it has come. */
export interface Writer {
  prompt: Token[];
  /** what is out by now */
  out: Token[];
  lane: Lane;
  /** the same words without the cache */
  plain: Lane | null;
  lanes: Lane[];
  guess: number | null;
  /** milliseconds of the run that is shown, so many times slower than it was */
  t: number;
  factor: number;
  playing: boolean;
  noEos: boolean;
  /** there as soon as something is written */
  model: { config: Config };
  /** whether nothing is to move */
  still: { matches: boolean };
  data: { compared: Costed[]; card: Card };
  race(guess: number | null): unknown;
  /** write a text that does not end, where one may be wanted */
  long?(): unknown;
}

/** The shipped model's: of its words, heads and KV entries more can be asked. */
export interface Diary extends Writer {
  text: string;
  data: Writer["data"] & {
    /** of the model: how many numbers it has, and the bytes of its file */
    parameters: number;
    bytes: number;
    /** words that it knows, beside the full stop and the end of a text */
    known: number;
    /** words by what they are: names, cities, … */
    kinds: string[][];
    /** the head that finds a name */
    finder: { layer: number; head: number };
    /** the word with which a diary is signed, and a name to put in a name's place */
    until: string;
    other: string;
    temperature: number;
  };
  words: Words | null;
  settings: Settings;
  talk: Talk | null;
  asked(tokens: number[], cache: boolean, more?: object): Write;
  find(act: string, promise: Promise<object>): unknown;
  typed(text: string): unknown;
  draw(): void;
}

/** The view that a reader's own model is shown in. */
export interface Host extends Pick<Writer, "data" | "still"> {
  /** the larger model next to the page, where it can be fetched */
  larger: { file: string; bytes: number } | null;
  own: { take(text: string): unknown } | null;
}

/** An ask without its id. */
export type Write = Omit<Extract<Ask, { do: "write" }>, "id">;
export type Changed = Extract<Answer, { op: "changed" }>;

/** What an act makes of a word of the text: a button, with another word `instead`; nothing, or null to leave it out. */
export type Mark =
  (ButtonHTMLAttributes<HTMLButtonElement> & { class?: string; instead?: string }) | null | undefined | false;
export type Marks = (i: number) => Mark;
