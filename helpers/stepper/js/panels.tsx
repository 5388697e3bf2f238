// What stands around the board: legend, what moves under it when there is no room beside, work and price.
import VIEW from "../view.json" with { type: "json" };
import { NextWord, sums } from "./beside.tsx";
import { fillText, formatNumber } from "./format.ts";
import { DENSE_FROM } from "./geometry.ts";
import { Legend, QUIET, Word } from "./parts.tsx";
import { drawerName, entriesNote, whereOf } from "./words.ts";
import type { Board, Frame } from "./types";

const LEGEND_MARKS: Record<string, string> = { masked: VIEW.marks.masked, again: "2" };
const ROWS_LISTED = 24;
const CONTEXTS_IN_SIGHT = 8;

/** What the marks of the grid and the edges of K and V mean. */
export function BoardLegend({ board, columns }: { board: Board; columns: number }) {
  const dense = columns >= DENSE_FROM; // cells too small for a count
  const crossed = columns <= VIEW.digits_up_to || board.lab; // else no × is drawn
  const cells = Object.entries(VIEW.legend)
    .filter(([kind]) => crossed || kind !== "masked")
    .map(([kind, word]) => [
      `wid-cell ${kind} share`,
      dense && kind === "again" ? "" : LEGEND_MARKS[kind],
      word,
    ]);
  const ahead = board.frame.ahead ? [["wid-cell ahead", "", VIEW.labels.ahead]] : [];
  const evicted = board.frame.columns.some(({ entry }) => entry === "evicted");
  const states = Object.keys(VIEW.entries) as (keyof typeof VIEW.entries)[];
  const entries = (evicted ? states : states.slice(0, 3)).map((state) => [
    ...[`wid-row v ${state}`, "", VIEW.entries[state]],
  ]);
  return <Legend label="Legend" items={[...cells, ...ahead, ...entries, ["", "", VIEW.labels.area]]} />;
}

/** What the cache holds, in a line, next to the buttons where the board's own is far from them. */
export function Held({ board: { frame, cols } }: { board: Board }) {
  return (
    <div class="wid-held" aria-hidden="true">
      <b>{drawerName(frame)}</b> {entriesNote(frame)}
      <p class="wid-entries">
        {frame.columns.slice(...cols).map(({ entry }) => (
          <i class={entry} />
        ))}
      </p>
    </div>
  );
}

function ContextTable({ frame, withTargets }: { frame: Frame; withTargets: boolean }) {
  const { columns, contexts, heads, row, targets } = frame;
  const scrolled = (node: HTMLElement | null) => {
    if (node && contexts.size > CONTEXTS_IN_SIGHT) node.scrollTop = node.scrollHeight;
  };
  const label = VIEW.labels.contexts;
  return (
    <div>
      <p class="soft strong wid-title">{label}</p>
      <div class="wid-scroll" ref={scrolled} tabIndex={0} role="group" aria-label={label} {...QUIET}>
        <table class="wid-contexts">
          <tr>
            {["", ...heads.map(({ name }) => name), ...(withTargets ? [VIEW.labels.target] : [])].map(
              (name) => (
                <th>{name}</th>
              ),
            )}
          </tr>
          {[...contexts].map(([query, numbers]) => (
            <tr class={query === row ? "chosen" : ""}>
              <th>
                <Word text={columns[query].text} most={12} />
              </th>
              {numbers.map((c) => (
                <td>{formatNumber(c)}</td>
              ))}
              {withTargets && (
                <td>
                  <Word text={targets.get(query) ?? ""} most={12} />
                </td>
              )}
            </tr>
          ))}
        </table>
      </div>
    </div>
  );
}

function Targets({ frame: { columns, targets } }: { frame: Frame }) {
  const listed = [...targets].slice(0, ROWS_LISTED);
  return (
    <p class="wid-targets">
      <b>{`${VIEW.labels.targets} `}</b>
      {listed.map(([query, word], k) => [
        k > 0 && ", ",
        <Word text={columns[query].text} />,
        " → ",
        <Word text={word} />,
      ])}
      {targets.size > ROWS_LISTED && fillText(VIEW.labels["in all"], { many: targets.size })}
    </p>
  );
}

/** Contexts, targets and the next word where the board has no room for them beside the grid. */
export function Below({ board }: { board: Board }) {
  const { layout, frame } = board;
  const { narrow, dense, next } = layout;
  const showsContexts = narrow && board.showsContexts(frame);
  const contexts = showsContexts && !dense && frame.contexts.size > 0;
  const withTargets = frame.targets.size > 0;
  const parts = [
    contexts && <ContextTable frame={frame} withTargets={withTargets} />,
    showsContexts && (
      <ul class="wid-sums">
        {sums(board).map(({ name, said }) => (
          <li>
            <span class="soft">{name}</span>
            {said}
          </li>
        ))}
      </ul>
    ),
    withTargets && !contexts && (!next || dense) && <Targets frame={frame} />,
    narrow && frame.out && (
      <div class="wid-nextbox">
        <NextWord frame={frame} out={frame.out} from />
      </div>
    ),
  ];
  return (
    <div class="wid-below" hidden={!parts.some(Boolean)}>
      {parts}
    </div>
  );
}

function workBar({ name, done, total, avoided, scale }: Frame["work"]["bars"][number]) {
  const width = (count: number) => `width:${(100 * count) / scale}%`;
  const of = total === null ? "" : ` of ${total.toLocaleString("en")}`;
  const rest = avoided > 0 ? `, ${avoided.toLocaleString("en")} avoided` : "";
  return [
    <span>{VIEW.race[name as "positions" | "pairs"]}</span>,
    <span class="wid-work" aria-hidden="true">
      <i class="done" style={width(done)} />
      {avoided > 0 && <i class="avoided" style={width(avoided)} />}
    </span>,
    <span class="wid-workwords" data-work={name}>{`${done.toLocaleString("en")}${of}${rest}`}</span>,
  ];
}

/** The next word if it has no other place, the work of this pass, and what it costs to keep. */
export function Foot({ board }: { board: Board }) {
  const { layout, frame } = board;
  const { work, out } = frame;
  const next = !layout.next && !layout.narrow;
  const { soFar, soFarWithout, bars, stored } = work;
  const more = (soFarWithout ?? 0) > soFar ? fillText(VIEW.work.without, { soFarWithout }) : "";
  return (
    <div class="wid-foot" hidden={board.lab && !next}>
      {next && <div class={out ? "wid-nextbox" : ""}>{out && <NextWord frame={frame} out={out} from />}</div>}
      {!board.lab && [
        <section>
          <h3>
            {`${VIEW.work.title} `}
            <span>{VIEW.work.unit}</span>
          </h3>
          <div class="wid-works">{bars.map(workBar)}</div>
        </section>,
        <section>
          <h3>{VIEW.work.price}</h3>
          <p>
            {`${fillText(VIEW.work.stored, { where: whereOf(frame) })} `}
            <b>{stored.toLocaleString("en")}</b>
          </p>
          <p class="soft">{`${fillText(VIEW.work["so far"], { soFar })}${more}`}</p>
        </section>,
      ]}
    </div>
  );
}
