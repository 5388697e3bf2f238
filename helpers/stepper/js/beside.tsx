// What stands beside the board, or under it where it is narrow: contexts, sums, targets, the next word, the ledger.
import VIEW from "../view.json" with { type: "json" };
import { formatNumber, visibleText } from "./format.ts";
import { CANDIDATES, lastPassOf } from "./frame.ts";
import { nextTop, rowTop } from "./geometry.ts";
import { Candidates, Word } from "./parts.tsx";
import { ledgerOf, entriesNote, sumOf, throughLayers, untouched } from "./words.ts";
import type { Board, Frame, Layout, Out } from "./types";

const LINE = 24; // height of one candidate
const CONTEXT = 46; // width of one context

/** Contexts, sums, whose the untouched rows are, targets, the next word. */
export function beside(board: Board) {
  const { layout, frame } = board;
  const { dense, next } = layout;
  const { run, event, out } = frame;
  const old = frame.columns.map(({ live, index }) => (live ? null : lastPassOf(run, event.index, index)));
  return [
    board.showsContexts(frame) && !dense && contexts(board),
    sums(board).map(({ h, said }) => (
      <div {...board.at(`sum${h}`, "wid-text number", `weights ${h + 1}`, "notes / -1")}>{said}</div>
    )),
    !dense && old.map((pass, i) => pass && note(board, `old${i}`, "soft", i, untouched(pass))),
    dense && event.counted && old.some(Boolean) && (
      <div {...board.at("old", "wid-text soft", "heads", "notes")}>{VIEW.labels["earlier lines"]}</div>
    ),
    next && frame.targets.size > 0 && !dense && targets(board),
    next && !frame.targets.size && out && nextWord(board, out),
  ];
}

/** The sums that become the chosen line's contexts, head by head; a term has the key of the weight that it holds. */
export function sums({ frame, lit }: Board) {
  return frame.weights.flatMap((line, h) => {
    const sum = sumOf(line);
    if (sum === null || !line.context) return [];
    const terms = (typeof sum === "string" ? [] : sum).map(({ column, text }, k) => [
      k > 0 && " + ",
      <span data-key={`t${h}.${column}`} class={lit.has(`t${h}.${column}`) ? "lit" : ""}>
        {text}
      </span>,
    ]);
    const said = [typeof sum === "string" ? sum : terms, " = ", <b>{formatNumber(line.context[0])}</b>];
    return [{ h, name: line.name, said }];
  });
}

function contexts(board: Board) {
  const { frame } = board;
  const style = `--context:${CONTEXT}px`;
  return [
    <div {...board.at("ctx", "wid-contexthead soft", "heads", "notes", style)}>
      <b>{VIEW.labels.contexts}</b>
      {frame.heads.map(({ name }) => (
        <span title={name}>{name}</span>
      ))}
    </div>,
    ...[...frame.contexts].map(([query, numbers]) => {
      const quiet = query === frame.row || query === frame.out?.query ? "" : "soft";
      return (
        <div {...board.at(`ctx${query}`, "wid-contextrow", `cell ${query + 1}`, "notes", style)}>
          {numbers.map((c, h) => (
            <span {...board.keyed(`ctx${query}.${h}`, quiet)}>{formatNumber(c)}</span>
          ))}
        </div>
      );
    }),
  ];
}

/** Text beside a line of the grid. */
function note(
  board: Board,
  key: string,
  className: string,
  i: number,
  text: string,
  column = "notes",
  title?: string,
) {
  return (
    <div {...board.at(key, `wid-text ${className}`, `cell ${i + 1}`, column)} title={title}>
      {text}
    </div>
  );
}

function targets(board: Board) {
  return [
    <b {...board.at("tgt", "wid-text soft low", "heads", "next")}>{VIEW.labels.target}</b>,
    ...[...board.frame.targets].map(([query, word]) =>
      note(board, `tgt${query}`, "target", query, `→ ${visibleText(word)}`, "next", visibleText(word)),
    ),
  ];
}

/** How the choice was made, where the percentages do not tell. */
const howOf = ({ how }: Out) => (how === "greedy" ? [] : [how, VIEW.labels.shares]);

/** The next word's candidates; `from`: said of which line, where no arrow can show it. */
export function NextWord({ frame, out, from = false }: { frame: Frame; out: Out; from?: boolean }) {
  return [
    <p class="soft strong">
      {`${VIEW.labels.next}${throughLayers(frame)}`}
      {from && [`, ${VIEW.labels["from line"]} `, <Word text={frame.columns[out.query].text} />]}
    </p>,
    <Candidates out={out} />,
    howOf(out).map((text, k) => (
      <p data-key={`how${k}`} class="wid-text soft" title={text}>
        {text}
      </p>
    )),
  ];
}

function nextWord(board: Board, out: Out) {
  const { frame, rows } = board;
  const layout = board.layout as Layout;
  const query = out.query - rows[0];
  const middle = rowTop(layout, query) + layout.rowH / 2;
  const lines = Math.min(out.top.length, CANDIDATES) + howOf(out).length;
  const from = layout.dense || !frame.contexts.size ? 4 : 20 + frame.heads.length * CONTEXT;
  const far = throughLayers(frame) ? "far" : "";
  const top = `margin-top:${nextTop(layout, middle, lines, LINE)}px`;
  const place = [`cell ${query + 1}`, "end / next", `margin-left:${from}px`];
  return [
    <div {...board.at("arrow", `wid-arrow ${far}`, place[0], place[1], place[2])} />,
    <div {...board.at("next", "wid-nextbox", "1 / k", "next", top)}>
      <NextWord frame={frame} out={out} />
    </div>,
  ];
}

/** What happens to the KV entries: next to K and V, or, where that is too narrow, together. */
export function notes(board: Board) {
  const { layout, frame } = board;
  const ledger = board.lab ? ledgerOf(frame) : null;
  const line = (key: string, className: string, text: string | null | undefined, more = {}) =>
    text && (
      <div data-key={key} class={`wid-text ${className}`} {...more}>
        {text}
      </div>
    );
  const box = (key: string, row: string, column: string, ...lines: any[]) => (
    <div {...board.at(key, "wid-lines", row, column)}>{lines}</div>
  );
  const holds = { "data-holds": ledger?.holds };
  const said = line("ledger", `ledger ${ledger?.holds ? "number" : "soft"}`, ledger?.text, holds);
  const rows = line("noteK", "soft", entriesNote(frame));
  if (layout.narrow || layout.dense) {
    const place = layout.narrow ? ["said", "col 1 / -1"] : ["drawer / -1", "notes / -1"];
    return box("notes", place[0], place[1], rows, said);
  }
  return [box("notesk", "k", "notes / -1", rows), box("notesv", "v", "notes / -1", said)];
}
