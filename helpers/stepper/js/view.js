// What every view has: a root in the page's theme, its width, its address, and an end.
import VIEW from "../view.json" with { type: "json" };
import { readAddress, withValues } from "./address.js";
import { isDarkAround, make, makeGroup, setText } from "./dom.js";

const SMALL = 640; // pixels: narrower than this, paddings and words are smaller
const REST = 250; // milliseconds: browsers refuse an address that changes all the time
const THEMES = ["class", "style", "data-jp-theme-light", "data-jp-theme-name", "data-theme", "theme"];

/**
 * A view of a trace in an element. A kind of view builds its nodes under `root`, draws itself into `width` in
 * `draw()`, and, where its state has an address, says it (`state()`: names and values, null for what is as at first)
 * and takes it (`goTo(values)`: a Map; what was not as it should be, in words, or nothing).
 */
export class View {
  constructor(el, options, kind, label) {
    this.el = el;
    this.options = options;
    this.width = 0;
    this.root = make("div", `wid-view wid-${kind} wid-live`);
    makeGroup(this.root, label);
    this.advice = make("p", "wid-advice");
    this.advice.setAttribute("role", "status");
    this.advice.hidden = true;
  }

  /** To be called when all is built: on to the page, and listen. */
  start() {
    this.root.prepend(this.advice);
    this.el.append(this.root);
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.resizes = new ResizeObserver(() => this.resized());
    this.resizes.observe(this.root);
    this.themes = new MutationObserver(() => this.repaint());
    for (const node of [document.documentElement, document.body])
      this.themes.observe(node, { attributes: true, attributeFilter: THEMES });
    this.onScheme = () => this.repaint();
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.onScheme);
    if (this.options.address) {
      this.onAddress = () => this.readAddress();
      addEventListener("hashchange", this.onAddress);
      this.readAddress();
    }
    this.resized();
  }

  readAddress() {
    const advice = this.goTo(readAddress(location.hash));
    this.advice.hidden = !advice;
    setText(this.advice, advice ?? "");
  }

  /** Write the state into the address, now or as soon as the last change has rested. */
  keepAddress() {
    if (!this.options.address || this.resting) return;
    this.resting = setTimeout(() => {
      this.resting = null;
      const hash = withValues(location.hash, this.state());
      if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname + location.search);
    }, REST);
  }

  resized() {
    const before = this.width;
    this.measure();
    if (this.width > 0 && this.width !== before) this.draw();
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

  get small() {
    return this.width <= SMALL;
  }

  repaint() {
    this.theme = null;
    if (this.width > 0) this.draw();
  }

  /** The colours of the page as it is now. */
  colours() {
    if (this.theme) return this.theme;
    this.root.classList.toggle("wid-dark", isDarkAround(this.root));
    const style = getComputedStyle(this.root);
    this.theme = Object.fromEntries(
      Object.keys(VIEW.palette.light).map((name) => [name, style.getPropertyValue(`--wid-${name}`).trim()]),
    );
    return this.theme;
  }

  destroy() {
    clearTimeout(this.resting);
    this.resizes.disconnect();
    this.themes.disconnect();
    this.scheme.removeEventListener("change", this.onScheme);
    removeEventListener("hashchange", this.onAddress);
    this.root.remove();
  }
}
