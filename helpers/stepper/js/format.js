// Numbers and token texts as the stepper writes them.

const TOUCH = 1e-4; // 9.1249999 is 9.125 with noise

/** At most two decimals, no trailing zeros, a real minus sign: 12.5, 10.33, −4. */
export function formatNumber(x) {
  if (!Number.isFinite(x)) return String(x);
  const rounded = (Math.sign(x) * Math.round(100 * Math.abs(x) + TOUCH)) / 100;
  const text = String(rounded);
  return text === "-0" ? "0" : text.replace("-", "−");
}

export function formatPercent(p) {
  if (p > 0 && p < 0.0005) return "<0.1%";
  return `${(100 * p).toFixed(1)}%`;
}

/** 1 row, 4 rows */
export function formatCount(n, one, many = `${one}s`) {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

const INVISIBLE = /^[\p{White_Space}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]*$/u;

/** A token's text; one that would leave no mark on the page is named by its code points. */
export function visibleText(text) {
  if (text === "") return "(empty)";
  if (!INVISIBLE.test(text)) return text;
  const names = Array.from(text, (c) => `U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  return names.join(" ");
}

/** Cut for running text; the whole stays reachable in the column's title. */
export function clippedText(text, most = 24) {
  const characters = Array.from(visibleText(text));
  return characters.length <= most ? characters.join("") : `${characters.slice(0, most - 1).join("")}…`;
}

/** For plain strings (labels read aloud, titles): the direction of one text must not turn the rest. */
export function isolatedText(text) {
  return `\u2068${visibleText(text)}\u2069`;
}
