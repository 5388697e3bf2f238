// Searches the book in the reader's page: static/search.js is this and MiniSearch, made by npm run build.
// The places that can be found, and the words that are shown, are in places.js; search.py writes it.
import MiniSearch from "minisearch";

type Place = { id: number; address: string; heading: string; page: string; text: string; asked?: string };

const MOST = 20; // places shown
const WINDOW = 170; // characters of a place's text
const STOP =
  "a an and are at be by can do does for from has how i if in is it me my of on or our should so that the their them " +
  "there these they this to was we what when where which who why will with you your";
const stops = new Set(STOP.split(" "));

/** A word as it is looked up, so that quantized is found by quantization: without its ending, in small letters. */
const termOf = (word: string) => word.toLowerCase().replace(/(?<=...)(ations?|ions?|ings?|ed|es?|s)$/, "");

/** The words of a text, and the parts of names such as FlashAttention and max_num_seqs. */
const wordsOf = (text: string) => [...text.matchAll(/[\p{L}\p{N}_]+/gu)];
const partsOf = (word: string) =>
  word.includes("_")
    ? word.split("_")
    : (word.match(/^([A-Z][a-z]{2,}){2,}$/) && word.match(/[A-Z][a-z]+/g)) || [];
const termsOf = (text: string) => wordsOf(text).flatMap(([word]) => [word, ...partsOf(word)]);

const element = (id: string): any => document.getElementById(id);

declare const index: { places: Place[]; said: { found: string[]; nothing: string } };
const { places, said } = index;
const field = element("query");
const engine = new MiniSearch({
  fields: ["heading", "asked", "page", "text"],
  tokenize: termsOf,
  processTerm: termOf,
  searchOptions: {
    boost: { heading: 4, asked: 4, page: 2 },
    boostDocument: (id) => (places[id].heading.endsWith("?") ? 2 : 1), // questions come with their answers
    prefix: (term) => term.length > 2,
    fuzzy: (term) => term.length > 4 && 0.2,
  },
});
engine.addAll(places);

/** The places that fit, best match first: those that are called so, then by score. Each cell and each heading comes once. */
function search(query: string) {
  const words = query.split(" ").filter((word) => !stops.has(word.toLowerCase()));
  const found = engine
    .search(words.join(" ") || query)
    .map(({ id, terms }) => ({ place: places[id], terms: new Set(terms) }));
  const isCalled = ({ heading, asked }: Place) =>
    [heading, asked ?? ""].some((names) => names.toLowerCase().split(", ").includes(query.toLowerCase()));
  const called = found.filter(({ place }) => isCalled(place));
  called.sort((a, b) => a.place.id - b.place.id); // questions and words before headings
  const seen = new Set();
  const isNew = (key: string) => !seen.has(key) && seen.add(key);
  return [...called, ...found]
    .filter(({ place: { address, page, heading } }) => isNew(address) && isNew(page + heading))
    .slice(0, MOST);
}

/** The part of a text that has most of the terms, these marked. */
function excerpt(text: string, terms: Set<string>) {
  const hits = wordsOf(text).filter(([word]) => terms.has(termOf(word)));
  const within = hits.map((hit) =>
    hits.filter(({ index }) => index >= hit.index && index < hit.index + WINDOW),
  );
  const many = within.map((near) => new Set(near.map(([word]) => termOf(word))).size);
  const near = within[many.indexOf(Math.max(...many))] ?? [];
  const start = near.length ? text.lastIndexOf(" ", Math.max(0, near[0].index - 40)) + 1 : 0;
  const stop = text.indexOf(" ", start + WINDOW + 40);
  const end = stop < 0 ? text.length : stop;
  const parts: (string | Node)[] = [start ? "… " : ""];
  let at = start;
  for (const { 0: word, index } of near) {
    parts.push(text.slice(at, index), Object.assign(document.createElement("mark"), { textContent: word }));
    at = index + word.length;
  }
  return [...parts, text.slice(at, end), end < text.length ? " …" : ""];
}

function line({ place, terms }: { place: Place; terms: Set<string> }) {
  const [item, link, page, text] = ["li", "a", "span", "p"].map((name) => document.createElement(name));
  Object.assign(link, { href: place.address, textContent: place.heading });
  page.textContent = place.page === place.heading ? "" : place.page;
  text.append(...excerpt(place.text, terms));
  item.append(link, " ", page, text);
  return item;
}

function show() {
  const query = field.value.trim();
  const found = query ? search(query) : [];
  element("found").replaceChildren(...found.map(line));
  const [one, many] = said.found;
  const count =
    found.length > 1 ? many.replace("{n}", String(found.length)) : found.length ? one : said.nothing;
  element("count").textContent = query ? count : "";
}

/** The query of the address: #q=…, or ?q=… as the field of another page sends it. */
function fromAddress() {
  const [own, sent] = [location.hash.slice(1), location.search].map((part) =>
    new URLSearchParams(part).get("q"),
  );
  field.value = own ?? sent ?? "";
  show();
}

field.addEventListener("input", () => {
  history.replaceState(null, "", field.value ? `#${new URLSearchParams({ q: field.value })}` : "#");
  show();
});
addEventListener("hashchange", fromAddress);
// Arrows go from the field down the list and back, Enter in the field follows the first, / and Escape lead back to it.
addEventListener("keydown", (event) => {
  const stops = [field, ...document.querySelectorAll("#found a")];
  const at = stops.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Escape: 0, "/": at ? 0 : -1 }[event.key] ?? -1;
  if (at === 0 && event.key === "Enter") stops[1]?.click();
  else if (stops[to] && (at >= 0 || event.key === "/")) stops[to].focus();
  else return;
  event.preventDefault();
});
fromAddress();
