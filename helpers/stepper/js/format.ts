// Numbers, token texts and the sentences of view.json as the stepper writes them; format.py does the same.
import VIEW from "../view.json" with { type: "json" };
import type { Filled, Parts } from "./types";

const TOUCH = 1e-4; // 9.1249999 is 9.125 with noise
const LONG = 1e6; // from here on with an exponent

/** At most two decimals, no trailing zeros, a real minus sign: 12.5, 10.33, −4, 1.5e9. */
export function formatNumber(x: number) {
  if (!Number.isFinite(x)) return String(x);
  const [digits, exponent] = x.toExponential(2).split("e").map(Number);
  const rounded = (Math.sign(x) * Math.round(100 * Math.abs(x) + TOUCH)) / 100;
  const text = Math.abs(x) < LONG ? String(rounded || 0) : `${digits}e${exponent}`;
  return text.replace("-", "−");
}

/** A share of 1: 72.3%; what is not quite 0 or 1 as <0.1% or >99.9%. */
export function formatPercent(p: number) {
  if (p > 0 && p < 0.0005) return "<0.1%";
  return p >= 0.9995 && p < 1 ? ">99.9%" : `${(100 * p).toFixed(1)}%`;
}

const PREFIXES = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
  [1, ""],
  [1e-3, "m"],
  [1e-6, "µ"],
  [1e-9, "n"],
];

/** Three digits with the prefix that fits: 15.0 GB, 4.48 ms; of seconds as many as there are: 1,258 s. */
export function formatUnit(x: number, unit: string) {
  const most = unit === "s" ? 1 : Infinity;
  const [size, prefix] = PREFIXES.find(([size]) => Number(size) <= most && x >= Number(size) * 0.9995) ?? [
    1,
    "",
  ];
  const scaled = x / Number(size);
  const digits = x === 0 || scaled >= 99.95 ? 0 : scaled >= 9.995 ? 1 : 2;
  const text = scaled.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${text} ${prefix}${unit}`;
}

/** Three digits without an exponent: 0.0123, 1.50, 39.1, 2,070. */
export function formatDigits(x: number) {
  const digits = x > 0 && Number.isFinite(x) ? Math.max(0, 2 - Math.floor(Math.log10(x))) : 0;
  return x.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Bytes as memories are sold: 80.0 GiB, 128.0 MiB. */
export function formatGib(nbytes: number) {
  const [size, name] = nbytes >= 2 ** 30 ? [2 ** 30, "GiB"] : [2 ** 20, "MiB"];
  const text = (nbytes / size).toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  return `${text} ${name}`;
}

/** 1 entry, 4 entries, 1,024 pairs */
function formatCount(n: number, one: string) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : `${one.replace(/y$/, "ie")}s`}`;
}

/**
 * A template of view.json as parts. {pairs} is filled in, {pairs|pair} counted: "1 pair", "15 pairs". A value may be
 * a number, a string, {token: text} for a word that a token says, or parts.
 */
export function fill(template: string, values: Filled = {}): Parts {
  const pieces = template.split(/\{(\w+)(?:\|([\w ]+))?\}/); // text, name, unit, text, …
  return pieces.flatMap((piece, i) => {
    if (i % 3 === 0) return piece || [];
    if (i % 3 === 2) return [];
    const [value, unit] = [values[piece] as any, pieces[i + 1]];
    if (unit) return formatCount(value, unit);
    return typeof value === "number" ? value.toLocaleString("en") : value;
  });
}

/** A template without tokens as a string. */
export function fillText(template: string, values?: Filled) {
  return fill(template, values).join("");
}

const BLANK = new RegExp(`^${VIEW.blank}*$`, "u");
const UNSAFE = new RegExp(VIEW.unsafe, "gu");

const codePoint = (character: string) =>
  `U+${character.codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}`;

/** A token's text; what would leave no mark on the page, or turn the text around it, by its code points. */
export function visibleText(text: string) {
  if (text === "") return VIEW.labels.empty;
  if (BLANK.test(text)) return Array.from(text, codePoint).join(" ");
  return text.replace(UNSAFE, codePoint);
}

/** Cut for running text; the whole stays reachable in the column's title. */
export function clippedText(text: string, most = 24) {
  const characters = Array.from(visibleText(text));
  return characters.length <= most ? characters.join("") : `${characters.slice(0, most - 1).join("")}…`;
}

/** For plain strings (labels read aloud, titles): the direction of one text must not turn the rest. */
export function isolatedText(text: string, most = Infinity) {
  return `\u2068${clippedText(text, most)}\u2069`;
}

const GLUED = new RegExp(VIEW.glued, "u");

/** Whether tokens carry their own blanks, as most tokenizers have it, or stand apart by themselves. */
export function carriesSpaces(tokens: { text: string }[]) {
  return tokens.some(({ text }) => /^\s\S|\S\s$/.test(text));
}

const BYTE = "<0x[0-9A-F]{2}>";
const [BYTES, ENDS, BEGINS] = [`(?:${BYTE})+`, `${BYTE}$`, `^${BYTE}`].map(
  (pattern) => new RegExp(pattern, "g"),
);

/** Texts in which a character of several tokens comes with the last of them; the others are empty. */
function joinedBytes(texts: string[]) {
  let open = "";
  return texts.map((text, i) => {
    open += text;
    if (text.search(ENDS) >= 0 && (texts[i + 1] ?? "").search(BEGINS) >= 0) return "";
    const whole = open.replace(BYTES, characterOf);
    open = "";
    return whole;
  });
}

/** The characters of bytes as a trace writes them, <0xF0><0x9F>…; the same where they are none. */
function characterOf(bytes: string) {
  const numbers = bytes.slice(3, -1).split("><0x");
  try {
    const fatal = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
    return fatal.decode(Uint8Array.from(numbers, (hex) => parseInt(hex, 16)));
  } catch {
    return bytes;
  }
}

/** Tokens as running text: {text, blank}, blank where one stands before; none before a full stop and the like. */
export function runningText(tokens: { text: string }[]) {
  const own = carriesSpaces(tokens);
  return joinedBytes(tokens.map(({ text }) => text)).map((text) =>
    own ? { text: text.trim() || text, blank: /^\s/.test(text) } : { text, blank: !GLUED.test(text) },
  );
}
