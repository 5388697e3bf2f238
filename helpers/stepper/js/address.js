// The state of a page's views in its address: #pass=3&cache=off. One line for all views of a page, each with its
// own names. What stands there may be cut off or made by hand: whoever reads a value says what was wrong with it.

/** The names and values of an address; a name that comes twice counts once, and the first time. @param {string} hash */
export function readAddress(hash) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, "")))
    if (!found.has(name)) found.set(name, value);
  return found;
}

/** The address with some values changed: null takes a name away, others stay as they are.
 * @param {string} hash @param {Record<string, string | number | null>} values */
export function withValues(hash, values) {
  const all = readAddress(hash);
  for (const [name, value] of Object.entries(values))
    if (value === null) all.delete(name);
    else all.set(name, String(value));
  const text = new URLSearchParams([...all]).toString();
  return text ? `#${text.replaceAll("%2C", ",")}` : "";
}

/** A whole number out of an address, as near to what is asked as there is. Nothing there: `otherwise`.
 * @param {string | undefined} text @param {number} first @param {number} last @param {number | null} otherwise */
export function nearest(text, first, last, otherwise) {
  if (text === undefined || !/^-?\d{1,15}$/.test(text)) return { value: otherwise, fits: text === undefined };
  const value = Math.max(first, Math.min(last, Number(text)));
  return { value, fits: value === Number(text) };
}
