// What a step does, shown: the newest word drops into its column, its K and V slide into the cache, its pairs light
// up, and the word that comes out flies to the text. Half a second, and only for a single step forward.

import { firstRunOf } from "./frame.ts";
import type { Frame } from "./types";

const WHOLE = 480; // milliseconds
const EASE = "cubic-bezier(.2, .7, .3, 1)";

function play(node: Element | null | undefined, keyframes: Keyframe[], start: number, end: number) {
  const [delay, duration] = [start * WHOLE, (end - start) * WHOLE];
  node?.animate(keyframes, { delay, duration, easing: EASE, fill: "backwards" });
}

const fadeIn = [{ opacity: 0 }, { opacity: 1 }];
const dropIn = (by: number) => [
  { opacity: 0, transform: `translateY(${-by}px)` },
  { opacity: 1, transform: "none" },
];
const emptied = (by: number) => [
  { opacity: 1, transform: "none" },
  { opacity: 0, transform: `translateY(${by}px)`, offset: 0.45 },
  { opacity: 0, transform: `translateY(${-by}px)`, offset: 0.5 },
  { opacity: 1, transform: "none" },
];

/** Move a node's picture from where another stands; the node itself is where it belongs. */
function fly(from: Element | null, to: Element | null) {
  if (!from || !to) return;
  const [a, b] = [from.getBoundingClientRect(), to.getBoundingClientRect()];
  if (!a.width || !b.width) return;
  const by = `translate(${a.left - b.left}px, ${a.top - b.top}px)`;
  const there = [
    { transform: by, opacity: 0.6 },
    { transform: "none", opacity: 1 },
  ];
  play(to, there, 0.45, 1);
}

/** Animate the pass that has just been drawn. */
export function animateStep(root: HTMLElement, frame: Frame) {
  const { event, run } = frame;
  const keyed: NodeListOf<HTMLElement> = root.querySelectorAll("[data-key]");
  const nodes = new Map(Array.from(keyed, (node) => [node.dataset.key, node]));
  const again = new Set(event.part.repeated.length ? event.queries : []);
  play(root.querySelector(".wid-canvas"), fadeIn, 0, 0.6);
  for (const query of event.queries) {
    const fresh = !again.has(query) || firstRunOf(run, query) === event.index;
    const rows = [nodes.get(`k${query}`), nodes.get(`v${query}`)];
    if (fresh) play(nodes.get(`h${query}`), dropIn(18), 0, 0.3);
    for (const row of rows) fresh ? play(row, dropIn(40), 0.2, 0.6) : play(row, emptied(26), 0, 0.6);
    for (let j = 0; j <= query; j++) {
      const at = 0.25 + (0.4 * j) / Math.max(1, frame.columns.length);
      play(nodes.get(`c${query}.${j}`), fadeIn, at, at + 0.2);
    }
  }
  const chosen = root.querySelector(".wid-candidate.chosen .wid-word");
  const index = event.part.out[0]?.chosen;
  fly(chosen, root.querySelector(`.wid-said[data-token="${index}"]`));
}
