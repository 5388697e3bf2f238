// The text so far, as text: each word's underline is as dark as the weight that the chosen line gives it.
import VIEW from "../view.json" with { type: "json" };
import { runningText, visibleText } from "./format.js";
import { hasRun, sharesOf, tokenState } from "./frame.js";
import { make, makeButton, setOnce } from "./dom.js";

/** How dark the underline of each word is, 0 to 1, relative to the word that the line looks at most. */
export function shades(frame) {
  const shares = frame.row === null ? null : sharesOf(frame, frame.row);
  const picked = [...(shares ?? [])].filter(([, share]) => share > 0);
  const most = Math.max(...picked.map(([, share]) => share));
  return new Map(picked.map(([j, share]) => [j, share / most]));
}

export class Ribbon {
  /** `onRow` is called with the token of a chosen word, `onPoint` with that of a word pointed at, or null. */
  constructor(onRow, onPoint) {
    this.node = make("div", "wid-ribbon");
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", VIEW.labels.ribbon);
    this.onRow = onRow;
    const at = (event) => event.target.closest?.("[data-token]")?.dataset.token;
    for (const kind of ["pointerover", "focusin"])
      this.node.addEventListener(kind, (e) => at(e) !== undefined && onPoint(Number(at(e))));
    for (const kind of ["pointerleave", "focusout"]) this.node.addEventListener(kind, () => onPoint(null));
  }

  /** All words at once, those to come unseen, so that the height is the same at every pass. */
  build(record) {
    this.record = record;
    const running = runningText(record.tokens);
    this.words = running.map(({ text }, index) => {
      const word = makeButton("", "", () => this.onRow(index));
      word.dataset.token = String(index);
      word.append(make("bdi", "wid-word", visibleText(text)));
      return word;
    });
    const parts = this.words.flatMap((word, i) => (i && running[i].blank ? [" ", word] : [word]));
    this.node.replaceChildren(...parts);
  }

  draw(frame, withWeights) {
    if (this.record !== frame.record) this.build(frame.record);
    const shade = withWeights ? shades(frame) : new Map();
    this.words.forEach((word, index) => {
      const { state, origin, fate } = tokenState(frame.record, frame.run, frame.event, index);
      const ran = hasRun(frame.run, frame.event, index);
      const chosen = withWeights && index === frame.row;
      setOnce(word, "className", `wid-said ${origin} ${state} ${fate} ${chosen ? "chosen" : ""}`);
      setOnce(word, "tabIndex", chosen ? 0 : -1);
      setOnce(word, "disabled", !ran || !withWeights);
      const dark = `${Math.round(100 * (shade.get(index) ?? 0))}%`;
      if (word.widShade !== dark) word.style.setProperty("--shade", (word.widShade = dark));
    });
  }

  /** The node of a token's word, for what flies there or lights up. */
  wordOf(index) {
    return this.words?.[index] ?? null;
  }
}
