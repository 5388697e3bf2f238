// The state of a page's views in its address: #pass=3&cache=off. One line for all views of a page, each with its
// own names: where several of a kind are on a page, they begin with the view's id, as in #view2.pass=3. What stands
// there may be cut off or made by hand: whoever reads a value says what was wrong with it.

/** The names and values of an address; a name that comes twice counts once, and the first time.
 * `own`: what names of a view begin with; they are told without it. */
export function readAddress(hash: string, own = "") {
  const found: Map<string, string> = new Map();
  for (const [name, value] of new URLSearchParams(hash.replace(/^#/, "")))
    if (name.startsWith(own) && !found.has(name.slice(own.length))) found.set(name.slice(own.length), value);
  return found;
}

/** The address with some values changed: null takes a name away, others stay as they are. */
export function withValues(hash: string, values: Record<string, string | number | null>, own = "") {
  const all = readAddress(hash);
  for (const [name, value] of Object.entries(values))
    if (value === null) all.delete(own + name);
    else all.set(own + name, String(value));
  const text = new URLSearchParams([...all]).toString();
  return text ? `#${text.replaceAll("%2C", ",")}` : "";
}

/** A whole number out of an address, as near to what is asked as there is. Nothing there: `otherwise`. */
export function nearest(text: string | undefined, first: number, last: number, otherwise: number | null) {
  if (text === undefined || !/^-?\d{1,15}$/.test(text)) return { value: otherwise, fits: text === undefined };
  const value = Math.max(first, Math.min(last, Number(text)));
  return { value, fits: value === Number(text) };
}
