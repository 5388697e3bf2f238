// The shipped model's tokenizer: one id a word, as helpers/tokenizer.py cuts them.

const CUT = /(<eos>|\.)|\p{White_Space}+/u;

export class Words {
  /** @param {string[]} vocabulary a word's id is its place in it */
  constructor(vocabulary) {
    this.vocabulary = vocabulary;
    this.ids = new Map(vocabulary.map((word, id) => [word, id]));
  }

  /** The ids of a text; an error names words that are not known. @param {string} text */
  encode(text) {
    const words = text.split(CUT).filter(Boolean);
    const unknown = words.filter((word) => !this.ids.has(word));
    if (unknown.length) throw new RangeError(`the model does not know ${unknown.join(", ")}`);
    return words.map((word) => /** @type {number} */ (this.ids.get(word)));
  }

  /** @param {number} id */
  text(id) {
    return this.vocabulary[id];
  }

  /** What each token adds to a text. @returns {import("./answer.js").Adds} */
  decodeStream() {
    return (id) => this.text(id);
  }

  /** The n words that take the fewest changes of a letter, whatever their capitals.
   * @param {string} word @param {number} n */
  nearest(word, n) {
    const changes = this.vocabulary.map((known) => changesBetween(word, known));
    return [...changes.keys()]
      .sort((i, j) => changes[i] - changes[j])
      .slice(0, n)
      .map((id) => this.vocabulary[id]);
  }
}

/** Letters to put in, to take out or to exchange. Source: Levenshtein 1966. @param {string} from @param {string} to */
function changesBetween(from, to) {
  const [a, b] = [from.toLowerCase().slice(0, 40), to.toLowerCase()];
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const above = row;
    row = [i];
    for (let j = 1; j <= b.length; j++)
      row.push(Math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + Number(a[i - 1] !== b[j - 1])));
  }
  return row[b.length];
}
