// What stands around the board: legend, what moves under it when there is no room beside, work and price.
import VIEW from "../view.json" with { type: "json" };
import { clippedText, fillText, formatNumber, visibleText } from "./format.js";
import { candidates, fillCandidate, sumNodes, throughLayers } from "./board.js";
import { DENSE_FROM } from "./geometry.js";
import { make, makeGroup, wordNode } from "./dom.js";
import { shapesOf, sumOf } from "./words.js";

const LEGEND_MARKS = { masked: VIEW.marks.masked, again: "2" };
const ROWS_LISTED = 24;
const CONTEXTS_IN_SIGHT = 8;

/** What the marks of the grid and the edges of K and V mean. */
export function legend(panels, columns) {
  const list = make("ul", "wid-legend");
  list.setAttribute("aria-label", "Legend");
  const item = (className, mark, word) => {
    const node = make("li");
    node.append(make("span", `${className} wid-key`, mark), word);
    list.append(node);
  };
  const share = panels.has("weights") ? "share" : "";
  const dense = columns >= DENSE_FROM; // cells too small for a count
  const few = columns <= VIEW.digits_up_to; // past them no × is drawn, and no count
  for (const [kind, word] of Object.entries(VIEW.legend))
    if (few || kind !== "masked")
      item(`wid-cell ${kind} ${share}`, dense && kind === "again" ? "" : (LEGEND_MARKS[kind] ?? ""), word);
  for (const state of ["written", "read", "made"]) item(`wid-row v ${state}`, "", VIEW.rows[state]);
  if (share) list.append(make("li", "", VIEW.labels.area));
  return list;
}

function contextTable(frame, withTargets) {
  const box = make("div", "wid-scroll");
  const table = make("table", "wid-contexts");
  const head = make("tr");
  head.append(make("th", "", ""));
  for (const { name } of frame.heads) head.append(make("th", "", name));
  if (withTargets) head.append(make("th", "", VIEW.labels.target));
  table.append(head);
  for (const [query, numbers] of frame.contexts) {
    const row = make("tr", query === frame.row ? "chosen" : "");
    const name = make("th");
    name.append(wordNode(clippedText(frame.columns[query].text, 12), visibleText(frame.columns[query].text)));
    row.append(name, ...numbers.map((c) => make("td", "", formatNumber(c))));
    if (withTargets) {
      const cell = make("td");
      cell.append(wordNode(clippedText(frame.targets.get(query), 12), visibleText(frame.targets.get(query))));
      row.append(cell);
    }
    table.append(row);
  }
  box.append(table);
  makeGroup(box, VIEW.labels.contexts);
  return box;
}

function sums(frame) {
  const list = make("ul", "wid-sums");
  for (const line of frame.weights) {
    const sum = sumOf(line);
    if (sum === null) continue;
    const item = make("li");
    const total = make("b", "", formatNumber(line.context[0]));
    item.append(make("span", "soft", line.name), ...sumNodes(sum, line.head), " = ", total);
    list.append(item);
  }
  return list;
}

function targetList(frame) {
  const list = make("p", "wid-targets");
  list.append(make("b", "", "targets "));
  [...frame.targets].slice(0, ROWS_LISTED).forEach(([query, word], k) => {
    if (k) list.append(", ");
    list.append(
      wordNode(clippedText(frame.columns[query].text), visibleText(frame.columns[query].text)),
      " → ",
      wordNode(clippedText(word), visibleText(word)),
    );
  });
  if (frame.targets.size > ROWS_LISTED) list.append(`, … (${frame.targets.size} in all)`);
  return list;
}

function nextWord(frame) {
  const { out } = frame;
  const box = make("div", "wid-next");
  const title = make("p", "soft strong", `${VIEW.labels.next}${throughLayers(frame)}, from the line of `);
  title.append(
    wordNode(clippedText(frame.columns[out.query].text), visibleText(frame.columns[out.query].text)),
  );
  if (out.how !== "greedy") title.append(make("span", "", ` (${out.how}; ${VIEW.labels.shares})`));
  const list = make("div", "wid-nextlist");
  list.append(make("span", `wid-arrow ${throughLayers(frame) ? "far" : ""}`));
  for (const candidate of candidates(out)) {
    const node = make("div", `wid-candidate ${candidate.chosen ? "chosen" : ""}`);
    fillCandidate(node, candidate);
    list.append(node);
  }
  box.append(title, list);
  return box;
}

/** Contexts, targets and the next word where the board has no room for them beside the grid. */
export function drawBelow(node, frame, layout, panels, showsContexts) {
  const parts = [];
  const narrowContexts = layout.narrow && !layout.dense && showsContexts && frame.contexts.size > 0;
  const withTargets = panels.has("targets") && frame.targets.size > 0;
  if (narrowContexts) parts.push(section(VIEW.labels.contexts, contextTable(frame, withTargets)));
  if (layout.narrow && panels.has("weights") && showsContexts) parts.push(section("", sums(frame)));
  if (withTargets && !narrowContexts && (!layout.next || layout.dense)) parts.push(targetList(frame));
  if (layout.narrow && panels.has("prediction") && frame.out) parts.push(nextWord(frame));
  const before = layout.narrow ? shapeLine(frame, panels) : [];
  node.replaceChildren(...before, ...parts);
  const box = node.querySelector(".wid-scroll");
  if (box && frame.contexts.size > CONTEXTS_IN_SIGHT) box.scrollTop = box.scrollHeight;
  node.hidden = before.length + parts.length === 0;
}

function section(title, ...parts) {
  const node = make("div");
  if (title) node.append(make("p", "soft strong wid-title", title));
  node.append(...parts);
  return node;
}

function shapeLine(frame, panels) {
  const shapes = panels.has("shapes") ? shapesOf(frame) : {};
  const text = [shapes.q, shapes.scores].filter(Boolean).join(", ");
  return text ? [make("p", "soft shape wid-across", text)] : [];
}

function barRow({ name, done, total, avoided, scale }) {
  const bar = make("span", "wid-work");
  bar.setAttribute("aria-hidden", "true");
  const solid = make("i", "done");
  const spared = make("i", "avoided");
  solid.style.width = `${(100 * done) / scale}%`;
  spared.style.width = `${(100 * avoided) / scale}%`;
  bar.append(solid, ...(avoided > 0 ? [spared] : []));
  const rest = avoided > 0 ? `, ${avoided.toLocaleString("en")} avoided` : "";
  const of = total === null ? "" : ` of ${total.toLocaleString("en")}`;
  const said = `${done.toLocaleString("en")}${of}${rest}`;
  const text = make("span", "wid-workwords", said);
  text.dataset.work = name;
  return [make("span", "", VIEW.race[name]), bar, text];
}

function boldNumber(label, number) {
  const node = make("span", "", `${label} `);
  node.append(make("b", "", number.toLocaleString("en")));
  return node;
}

/** Work of this pass, and what it costs to keep. */
export function drawFoot(node, frame, layout, panels) {
  const next = !layout.next && !layout.narrow && panels.has("prediction");
  node.hidden = !panels.has("work") && !next;
  node.replaceChildren(
    ...(next ? [frame.out ? nextWord(frame) : make("div")] : []),
    ...(panels.has("work") ? workSections(frame, panels) : []),
  );
}

function workSections(frame, panels) {
  const { work } = frame;
  const left = make("section");
  const title = make("h3", "", "Work in this pass ");
  const { sequences } = frame.record;
  const over = sequences > 1 ? fillText(VIEW.labels["over all"], { sequences }) : "";
  title.append(make("span", "", `one head and layer${over}; outlined: avoided`));
  const grid = make("div", "wid-works");
  for (const bar of work.bars) grid.append(...barRow(bar));
  left.append(title, grid);
  const right = make("section");
  const stored = make("p");
  stored.append(boldNumber("rows stored", work.stored));
  if (panels.has("reads")) stored.append(" · ", boldNumber("rows read in this pass", work.read));
  const without = work.soFarWithout;
  const more =
    without !== null && without > work.soFar
      ? ` with the cache, ${without.toLocaleString("en")} without`
      : "";
  right.append(
    make("h3", "", "What it costs to keep"),
    stored,
    make("p", "soft", `tokens run so far${over}: ${work.soFar.toLocaleString("en")}${more}`),
  );
  return [left, right];
}

/** The grid and the cache in words, for readers who do not see them. */
export function drawDescription(node, lines) {
  const text = lines.join("\n");
  if (node.widText === text) return;
  node.widText = text;
  node.replaceChildren(...lines.map((line) => make("p", "", line)));
}
