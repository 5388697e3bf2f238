// Small tools for the page. Text only ever enters through textContent.
import { clippedText, visibleText } from "./format.js";

const CONTROLS = new Set(["button", "input", "select"]);

/**
 * Keep JupyterLab's shortcuts away: D D would delete the cell. It asks the element that has the focus before
 * those around it, so that one mark on the whole stepper is not enough.
 */
function keepKeys(node) {
  node.setAttribute("data-lm-suppress-shortcuts", "true");
}

/** Make a node that is no control reachable by the Tab key, as a group with a name. */
export function makeGroup(node, label) {
  node.tabIndex = 0;
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", label);
  keepKeys(node);
}

export function make(tag, className = "", text = null) {
  const node = document.createElement(tag);
  if (CONTROLS.has(tag)) keepKeys(node);
  if (className) node.className = className;
  if (text !== null) node.textContent = text;
  return node;
}

/** A node with children, and attributes by name. */
export function makeWith(tag, className, children, attributes = {}) {
  const node = make(tag, className);
  node.append(...children);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export function makeButton(word, className, act) {
  const node = make("button", className, word);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

/** A row of buttons of which one is pressed; `choose` is called with its index. */
export class Segments {
  constructor(label, words, choose) {
    this.node = make("span", "wid-segments");
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", label);
    this.buttons = words.map((word, i) => makeButton(word, "", () => choose(i)));
    this.node.append(...this.buttons);
  }

  press(index) {
    this.buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
  }

  /** Which of them can be chosen now. */
  allow(isThere) {
    this.buttons.forEach((button, i) => (button.disabled = !isThere(i)));
  }
}

/** A list of which one is chosen, with the same face as `Segments`. */
export function makeSelect(label, words, choose) {
  const node = make("select");
  node.setAttribute("aria-label", label);
  node.append(...words.map((word) => make("option", "", word)));
  node.addEventListener("change", () => choose(node.selectedIndex));
  const allow = (isThere) => [...node.options].forEach((option, i) => (option.disabled = !isThere(i)));
  return { node, press: (index) => (node.selectedIndex = index), allow };
}

/** A token's word: its own direction, the whole of it as title when it may be cut. */
export function wordNode(text, full = null) {
  const node = make("bdi", "wid-word", text);
  if (full !== null && full !== text) node.title = full;
  return node;
}

/** The parts of a sentence as `fill` gives them: text, and words that tokens say; left alone if they stand, so that nobody hears them twice. */
export function fillParts(node, parts) {
  const key = JSON.stringify(parts);
  if (node.widKey === key) return;
  node.widKey = key;
  node.replaceChildren(
    ...parts.map((part) => {
      if (part.token === undefined) return part;
      const word = wordNode(clippedText(part.token), visibleText(part.token));
      word.classList.add("strong");
      return word;
    }),
  );
}

/** Set a property of a node unless it was set to this before: comparing is cheap, the page is not. */
export function setOnce(node, name, value) {
  node.widSet ??= {};
  if (node.widSet[name] === value) return;
  node.widSet[name] = value;
  node[name] = value;
}

export function setText(node, text) {
  setOnce(node, "textContent", text);
}

/** Children that are kept from one drawing to the next, by key: nothing flickers and focus stays. */
export class Pool {
  constructor(parent) {
    this.parent = parent;
    this.nodes = new Map();
    this.seen = new Set();
  }

  begin() {
    this.seen.clear();
    this.last = null;
  }

  /** Put a child at [x, y, width, height]; `text` may be null to leave its content alone, `style` is more of it. */
  put(key, tag, className, [x, y, w, h], text = null, title = "", style = "") {
    let node = this.nodes.get(key);
    if (!node) {
      node = make(tag);
      node.dataset.key = key; // what it is, for whoever reads the page
      this.nodes.set(key, node);
      if (this.last)
        this.last.after(node); // in the order of the drawing, which is the order of the Tab key
      else this.parent.prepend(node);
    }
    this.last = node;
    this.seen.add(key);
    const size = `${w === null ? "" : `width:${w}px;`}${h === null ? "" : `height:${h}px`}`;
    const place = `left:${x}px;top:${y}px;${size}${style && `;${style}`}`;
    if (node.widPlace !== place) {
      node.widPlace = place;
      node.style.cssText = place;
    }
    setOnce(node, "className", className);
    if (text !== null) setText(node, text);
    if (title || node.widSet.title) setOnce(node, "title", title);
    return node;
  }

  end() {
    for (const [key, node] of this.nodes)
      if (!this.seen.has(key)) {
        node.remove();
        this.nodes.delete(key);
      }
  }
}

let measuring = null;

/** Widths in pixels of texts in a font. */
export function textWidths(texts, font) {
  measuring ??= document.createElement("canvas").getContext("2d");
  measuring.font = font;
  return texts.map((text) => measuring.measureText(text).width);
}

function luminance(colour) {
  const numbers = colour.match(/[\d.]+/g)?.map(Number) ?? [];
  if (numbers.length < 3 || numbers[3] === 0) return null;
  const [r, g, b] = numbers.map((c) =>
    c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** True if the page around an element is dark, whoever made it so. */
export function isDarkAround(element) {
  for (let node = element.parentElement; node; node = node.parentElement) {
    const light = luminance(getComputedStyle(node).backgroundColor);
    if (light !== null) return light < 0.4;
  }
  return false;
}
