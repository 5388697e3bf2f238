// The shipped model's tokenizer: one id a word, as helpers/tokenizer.py cuts them.
import type { Adds } from "./opened";

const CUT = /(<eos>|\.)|\p{White_Space}+/u;
/** The same cut of what a reader types, where any other mark ends a word, too. */
const TYPED = /<eos>|\.|[\p{P}\p{S}]|[^\p{White_Space}\p{P}\p{S}]+/gu;
const MARK = /^[\p{P}\p{S}]$/u;
const SUGGESTED = 4;

/** `begun`: there are words that begin so. */
type Unknown = { word: string; at: number; begun: boolean; meant: string[] };

export class Words {
  declare vocabulary: string[];
  declare ids: Map<string, number>;
  declare folded: Map<string, string[]>;

  /** A word's id is its place in the vocabulary. */
  constructor(vocabulary: string[]) {
    this.vocabulary = vocabulary;
    this.ids = new Map(vocabulary.map((word, id) => [word, id]));
    this.folded = new Map();
    for (const word of vocabulary)
      this.folded.set(folded(word), [...(this.folded.get(folded(word)) ?? []), word]);
  }

  /**
   * What a reader has typed, in words of the model: a word that is not known becomes the only one that differs from
   * it in capitals and accents alone, and what is not known is left out: marks are `dropped`, words are in `left`.
   * `text`: the words with blanks between them; `unknown`: the first of those that are left out.
   */
  read(typed: string): {
    text: string;
    changed: [string, string][];
    dropped: string[];
    left: string[];
    unknown: Unknown | null;
  } {
    const known = [];
    const changed: Map<string, string> = new Map();
    const dropped: Set<string> = new Set();
    const left: Set<string> = new Set();
    let unknown: Unknown | null = null;
    for (const { 0: one, index: at } of typed.matchAll(TYPED)) {
      const [word, other] = this.ids.has(one) ? [one] : (this.folded.get(folded(one)) ?? []);
      if (word && !other) {
        known.push(word);
        if (word !== one) changed.set(one, word);
      } else if (MARK.test(one)) dropped.add(one);
      else {
        unknown ??= { word: one, at, ...this.suggest(one) };
        left.add(one);
      }
    }
    return { text: known.join(" "), changed: [...changed], dropped: [...dropped], left: [...left], unknown };
  }

  /** The words that begin like this one, or else those of which it may be a slip. */
  suggest(word: string) {
    const begun = this.vocabulary.filter((known) => folded(known).startsWith(folded(word)));
    return { begun: begun.length > 0, meant: begun.length ? begun.slice(0, SUGGESTED) : this.slips(word) };
  }

  /** The ids of a text; an error names words that are not known. */
  encode(text: string) {
    const words = text.split(CUT).filter(Boolean);
    const unknown = words.filter((word) => !this.ids.has(word));
    if (unknown.length) throw new RangeError(`the model does not know ${unknown.join(", ")}`);
    return words.map((word) => this.ids.get(word) as number);
  }

  text(id: number) {
    return this.vocabulary[id];
  }

  /** What each token adds to a text. */
  decodeStream(): Adds {
    return (id) => this.text(id);
  }

  /** The words that a third of the letters changed makes of it, the fewest changes first. */
  slips(word: string) {
    const changes = new Map(
      this.vocabulary.map((known) => [known, changesBetween(folded(word), folded(known))]),
    );
    return this.vocabulary
      .filter((known) => Number(changes.get(known)) <= word.length / 3)
      .sort((one, other) => Number(changes.get(one)) - Number(changes.get(other)))
      .slice(0, SUGGESTED);
  }
}

/** Without capitals and accents. */
const folded = (word: string) => word.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** Letters to put in, to take out or to exchange. Source: Levenshtein 1966. */
function changesBetween(from: string, to: string) {
  const [a, b] = [from.slice(0, 40), to];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const above = row;
    row = [i];
    for (let j = 1; j <= b.length; j++)
      row.push(Math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + Number(a[i - 1] !== b[j - 1])));
  }
  return row[b.length];
}
