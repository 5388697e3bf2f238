// What every view has: a root in the page's theme, its width, its address, and an end.
import { render, type ComponentChild } from "preact";
import PALETTE from "../../drawing/palette.json" with { type: "json" };
import VIEW from "../view.json" with { type: "json" };
import { readAddress, withValues } from "./address.ts";
import { isDarkAround } from "./dom.ts";
import { fillText } from "./format.ts";
import { QUIET } from "./parts.tsx";
import type { Theme } from "./types";

const SMALL = 640; // pixels: narrower than this, paddings and words are smaller
const REST = 250; // milliseconds: browsers refuse an address that changes all the time
const THEMES = ["class", "style", "data-jp-theme-light", "data-jp-theme-name", "data-theme", "theme"];

/**
 * A view of a trace in an element. Its state is plain data; a kind of view says how that looks in the width there
 * is (`template()`), and, where the state has an address, tells it (`state()`: names and values, null for what is
 * as at first) and takes it (`goTo(values)`: the names of what was not as it should be). A key does what
 * `keyAction(event)` answers, if anything.
 */
export class View {
  declare el: Element;
  declare options: any;
  declare width: number;
  declare advice: string | null;
  declare theme: Theme | null;
  declare reading: boolean;
  declare acted: boolean;
  declare root: HTMLDivElement;
  declare still: MediaQueryList;
  declare schemes: MediaQueryList[];
  declare resizes: ResizeObserver;
  declare themes: MutationObserver;
  declare onScheme: () => void;
  declare onAddress: () => void;
  declare behind: boolean | undefined;
  declare resting: number | undefined;

  /** As a view last read or wrote it. */
  static address = "";

  constructor(el: Element, options: any, kind: string, label: string) {
    this.el = el;
    this.options = options;
    this.width = 0;
    this.advice = null;
    this.theme = null;
    this.reading = false; // an address
    this.acted = false; // since the address was written
    this.root = document.createElement("div");
    this.root.className = `wid-view wid-${kind} wid-live`;
    this.root.tabIndex = 0;
    for (const [name, value] of Object.entries({ role: "group", "aria-label": label, ...QUIET }))
      this.root.setAttribute(name, value);
    this.root.addEventListener("keydown", (event) => this.pressed(event));
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.schemes = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query)); // paper is white
    this.resizes = new ResizeObserver(() => this.resized());
    this.themes = new MutationObserver(() => this.repaint());
    this.onScheme = () => this.repaint();
    this.onAddress = () => this.readAddress();
  }

  state(): Record<string, string | number | null> {
    return {};
  }

  goTo(_values: Map<string, string>): string[] {
    return [];
  }

  /** What a picture of it shows, one under the other: values that `goTo` takes. */
  stills(): Record<string, string | number>[] {
    return [{}];
  }

  keyAction(_event: KeyboardEvent & { target: any }): (() => void) | null | undefined {
    return null;
  }

  stop() {}

  template(): ComponentChild {
    return null;
  }

  /** To be called when all is ready: on to the page, and listen. */
  start() {
    this.el.append(this.root);
    this.resizes.observe(this.root);
    for (const node of [document.documentElement, document.body])
      this.themes.observe(node, { attributes: true, attributeFilter: THEMES });
    for (const scheme of this.schemes) scheme.addEventListener("change", this.onScheme);
    if (this.ownNames !== null) {
      addEventListener("hashchange", this.onAddress);
      this.readAddress();
    }
    this.resized();
  }

  /** What its names in the page's address begin with; null where it has none. */
  get ownNames(): string | null {
    return this.options.address ?? null;
  }

  /** The address of what it shows, and of no other view of the page. */
  address() {
    return withValues(withValues("", this.state(), this.ownNames ?? ""), { at: this.el.id });
  }

  readAddress() {
    this.reading = true;
    this.acted = false; // an act that was not yet written is over
    View.address = location.hash;
    const wrong = this.goTo(readAddress(location.hash, this.ownNames ?? ""));
    this.reading = false;
    this.advice = wrong.length ? fillText(VIEW.labels["no such"], { names: wrong.join(", ") }) : null;
    this.draw();
  }

  pressed(event: KeyboardEvent) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const act = this.keyAction(event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /** Write the state into the address: at once, and of changes that follow in a row the last as soon as they rest,
   * then `again`. */
  keepAddress(again = false) {
    this.advice = null; // what was wrong with an address is so no more
    if (this.ownNames === null || location.hash !== View.address) return; // another is about to be read
    this.acted ||= !this.reading && !again;
    this.behind = this.resting !== undefined;
    if (this.behind) return;
    this.resting = setTimeout(() => {
      this.resting = undefined;
      if (this.behind) this.keepAddress(true);
    }, REST);
    const state = this.state();
    const moved = Object.values(state).some((value) => value !== null);
    const several = document.querySelectorAll(".wid-live").length > 1;
    let hash = withValues(location.hash, state, this.ownNames);
    if (this.acted) hash = withValues(hash, { at: several && moved ? this.el.id : null }); // where a reader acted last
    this.acted = false;
    if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
    View.address = location.hash;
  }

  /** Show all of the view if a part of it lies below the fold, as on a phone. */
  comeIntoSight() {
    if (this.root.getBoundingClientRect().bottom <= innerHeight) return;
    this.root.scrollIntoView({ block: "start", behavior: this.still.matches ? "auto" : "smooth" });
  }

  resized() {
    const before = this.width;
    this.measure();
    if (this.width !== before) this.draw();
  }

  /** Ask the page for the width; not at every step, because asking makes it lay everything out. */
  measure() {
    const outer = this.root.clientWidth;
    this.width = 0;
    if (outer === 0) return; // not on the page yet, or in a hidden part of it
    this.root.classList.toggle("wid-small", outer < SMALL);
    const style = getComputedStyle(this.root);
    this.width = Math.floor(outer - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
  }

  repaint() {
    this.theme = null;
    this.draw();
  }

  /** Draw the state; what is not in sight is drawn as soon as it is. */
  draw() {
    if (this.width <= 0) return;
    this.colours();
    const advice = (
      <p class="wid-advice" role="status" hidden={!this.advice}>
        {this.advice}
      </p>
    );
    render([advice, this.template()], this.root);
  }

  /** The colours of the page as it is now. */
  colours() {
    if (this.theme) return this.theme;
    this.root.classList.toggle("wid-dark", isDarkAround(this.root));
    const style = getComputedStyle(this.root);
    const names = Object.keys(PALETTE.light);
    this.theme = Object.fromEntries(names.map((n) => [n, style.getPropertyValue(`--wid-${n}`).trim()]));
    return this.theme;
  }

  destroy() {
    this.stop();
    clearTimeout(this.resting);
    this.resizes.disconnect();
    this.themes.disconnect();
    for (const scheme of this.schemes) scheme.removeEventListener("change", this.onScheme);
    removeEventListener("hashchange", this.onAddress);
    render(null, this.root);
    this.root.remove();
  }
}
