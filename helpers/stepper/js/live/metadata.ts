// The header of a GGUF file, read from front to back: metadata of the model, and where each tensor is stored. `get`
// checks the type of each value, so that none of another type goes further.

/** What a value has to be: in words, and whether it is. */
type Kind<T> = { expected: string; fits: (value: any) => value is T };
/** A tensor's axes, the last one first, the number of its kind, and where it begins. */
export type Told = { shape: number[]; number: number; begins: number };

export const count = (n: number) => n.toLocaleString("en");

const kind = <T>(expected: string, fits: (value: any) => boolean): Kind<T> => ({
  expected,
  fits: fits as (value: any) => value is T,
});
export const TEXT: Kind<string> = kind("a text", (value) => typeof value === "string");
export const FLAG: Kind<boolean> = kind("true or false", (value) => typeof value === "boolean");
export const COUNT: Kind<number> = kind(
  "a whole number over 0",
  (value) => Number.isSafeInteger(value) && value > 0,
);
export const NATURAL: Kind<number> = kind(
  "a whole number, 0 or more",
  (value) => value === 0 || COUNT.fits(value),
);
/** All of a list are of one kind. */
export const TEXTS: Kind<string[]> = kind(
  "a list of texts",
  (value) => Array.isArray(value) && TEXT.fits(value[0]),
);
export const NUMBERS: Kind<number[]> = kind(
  "a list of numbers",
  (value) => Array.isArray(value) && Number.isFinite(value[0]),
);
export const between = (low: number, high: number): Kind<number> =>
  kind(
    `a number from ${low} to ${high < 1 ? high : count(high)}`,
    (value) => Number.isFinite(value) && value >= low && value <= high,
  );
/** An id of a vocabulary of n tokens. */
export const idOf = (n: number): Kind<number> =>
  kind(`a token's id, 0 to ${n - 1}`, (value) => Number.isInteger(value) && value >= 0 && value < n);

const SHOWN = 60; // characters of a value in a message

/** A value as messages show it. */
export function shown(value: any) {
  const list = Array.isArray(value) && `[${value.slice(0, 4).join(", ")}${value.length > 4 ? ", …" : ""}]`;
  const text = list || (typeof value === "string" ? `“${value}”` : String(value));
  return text.length > SHOWN ? `${text.slice(0, SHOWN - 1)}…` : text;
}

/** What a file says, by key. An array of equal values that describes the model, one for each layer, is read as that
 * value. */
export class Metadata {
  declare values: Map<string, any>;

  constructor(values: Map<string, any>) {
    this.values = values;
    const prefix = `${values.get("general.architecture")}.`;
    for (const [key, value] of values)
      if (key.startsWith(prefix) && Array.isArray(value) && new Set(value).size === 1)
        values.set(key, value[0]);
  }

  /** A value of this kind; where there is none, `missing`, if that is given. An error names the key. */
  get<T, M = never>(key: string, { expected, fits }: Kind<T>, missing?: M): T | M {
    const value = this.values.get(key);
    if (value === undefined && missing !== undefined) return missing;
    if (fits(value)) return value;
    throw new Error(`${key} is ${value === undefined ? "missing" : shown(value)}; expected ${expected}`);
  }
}

// How DataView reads each kind of number, and how many bytes that takes.
const STORED: Record<number, [string, number]> = {
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
const [UINT32, YES_OR_NO, STRING, LIST, UINT64] = [4, 7, 8, 9, 10];
const [MAGIC, VERSIONS] = ["GGUF", [2, 3]];
const SHORTEST = 24; // bytes: of the magic, the version and two counts
export const LONGEST = 2 ** 24; // bytes before the weights: half of that are a vocabulary of 128,000 and its merges

/** Reads from front to back. A length is believed only as far as the bytes go. */
class Header {
  declare bytes: DataView;
  declare size: number;
  declare at: number;

  /** The first bytes of a file, and how many it has. */
  constructor(bytes: DataView, size: number) {
    this.bytes = bytes;
    this.size = size;
    this.at = 0;
  }

  /** Refuse what goes further than the bytes. */
  checkLeft(nbytes: number) {
    const { byteLength } = this.bytes;
    if (this.at + nbytes <= byteLength) return;
    throw new Error(
      `its metadata reach byte ${count(this.at + nbytes)} or further; expected at most byte ${count(byteLength)}, ` +
        (byteLength < this.size ? "as far as this page reads metadata" : "where the file ends"),
    );
  }

  number(kind: number): number | boolean {
    if (!(kind in STORED))
      throw new Error(
        `a value of its metadata is of kind ${kind}; expected a number, a text or a list of those`,
      );
    const [name, nbytes] = STORED[kind];
    this.checkLeft(nbytes);
    const value = Number((this.bytes as any)[`get${name}`](this.at, true));
    this.at += nbytes;
    return kind === YES_OR_NO ? value !== 0 : value;
  }

  /** The number of items that follow, each of at least `nbytes` bytes. */
  count(nbytes: number, kind = UINT64) {
    const n = Number(this.number(kind));
    this.checkLeft(n * nbytes);
    return n;
  }

  text() {
    const n = this.count(1);
    const bytes = new DataView(this.bytes.buffer, this.at, n);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw new Error(`the text at byte ${count(this.at)} of its metadata is not in UTF-8`);
    } finally {
      this.at += n;
    }
  }

  /** The next value, which follows its type: a number, a text or a list. */
  value() {
    const kind = Number(this.number(UINT32));
    if (kind !== LIST) return kind === STRING ? this.text() : this.number(kind);
    const of = Number(this.number(UINT32));
    const n = this.count(of === STRING ? 8 : 1);
    return Array.from({ length: n }, () => (of === STRING ? this.text() : this.number(of)));
  }

  /** The next tensor's name, and what is said of it. */
  tensor(): [string, Told] {
    const name = this.text();
    const shape = Array.from({ length: this.count(8, UINT32) }, () => Number(this.number(UINT64))).reverse();
    return [name, { shape, number: Number(this.number(UINT32)), begins: Number(this.number(UINT64)) }];
  }
}

/** By key; a key that appears twice is refused. */
function byKey<T>(n: number, next: () => [string, T]) {
  const all: Map<string, T> = new Map();
  for (let i = 0; i < n; i++) {
    const [key, value] = next();
    if (all.has(key)) throw new Error(`the key ${shown(key)} appears twice`);
    all.set(key, value);
  }
  return all;
}

/** What a file says of its model and of each tensor, by name, and the byte after it: read
 * from the first bytes of the file, which has `size`. */
export function readHeader(bytes: DataView, size: number) {
  if (size < SHORTEST)
    throw new Error(`it has ${size} bytes; expected at least ${SHORTEST}, the beginning of any GGUF file`);
  const header = new Header(bytes, size);
  const begins = String.fromCharCode(...[0, 1, 2, 3].map(() => Number(header.number(0))));
  if (begins !== MAGIC)
    throw new Error(
      `it begins with ${JSON.stringify(begins)}; expected "${MAGIC}": it is a file of another kind`,
    );
  const version = Number(header.number(UINT32));
  if (!VERSIONS.includes(version)) throw new Error(`its GGUF is of version ${version}; expected 2 or 3`);
  const nTensors = header.count(24);
  const nKeys = header.count(12);
  const metadata = new Metadata(byKey(nKeys, () => [header.text(), header.value()]));
  return { metadata, told: byKey(nTensors, () => header.tensor()), end: header.at };
}
