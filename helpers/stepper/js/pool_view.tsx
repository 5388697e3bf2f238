// Draws an engine's run: requests as bands over steps, and below them the pages of the pool in one of the steps.
import VIEW from "../view.json" with { type: "json" };
import { fillText } from "./format.ts";
import { Legend, QUIET, Sentence, Switch } from "./parts.tsx";
import { Played } from "./played.tsx";
import * as pools from "./pool.ts";
import type { Moment, Pointed } from "./pool.ts";
import type { ComponentChild } from "preact";
import type { EngineTrace } from "./schema";

const POOL = VIEW.pool;
const PLAY_EVERY = 900; // milliseconds; long runs go faster
const PLAY_IN_ALL = 40_000;
const NUMBERED = 40; // pixels: pages as wide as this show their numbers

export class PoolView extends Played {
  declare pool: pools.Pool;
  declare paged: boolean;
  declare first: number;
  declare view: { step: number; request: number | null };
  declare sentences: string[][];
  declare longest: string[];
  declare legend: string[][];

  about: Pointed | null = null;
  kept: Map<string, { key: string; node: ComponentChild }> = new Map();

  constructor(el: Element, data: EngineTrace, options: any) {
    const pool = pools.poolOf(data);
    super(el, options, "pool", fillText(POOL.label, { model: data.name }));
    this.pool = pool;
    this.paged = options.pages;
    this.every = Math.min(PLAY_EVERY, PLAY_IN_ALL / data.steps.length);
    this.first = options.step;
    this.view = { step: this.first, request: null };
    this.sentences = data.steps.map((_, n) => [pools.poolSentence(pool, n, this.paged)]);
    this.longest = this.sentences.reduce((a, b) => (b[0].length > a[0].length ? b : a));
    const done = new Set(
      pool.stays.flatMap(({ back, blocks }) => [back && "back", ...blocks.map((b) => b.kind)]),
    );
    this.legend = Object.entries(POOL.legend)
      .filter(([kind]) => done.has(kind))
      .map(([kind, said]) => [`wid-doing ${kind}`, "", said]);
    this.start();
  }

  state() {
    const { step, request } = this.view;
    return {
      step: step === this.first ? null : step + 1,
      request: request === null ? null : this.pool.marks[request],
    };
  }

  goTo(values: Map<string, string>) {
    const { wrong, ...view } = pools.poolFrom(this.pool, values, this.first);
    this.change(view);
    return wrong;
  }

  keyAction({ key, target }: KeyboardEvent & { target: any }): (() => void) | null | undefined {
    if (target.tagName === "SELECT") return null;
    const choose = (by: number) => () =>
      this.change({ request: pools.nextRequest(this.pool, this.view.request, by) });
    const acts: Record<string, () => void> = {
      ...this.stepKeys(),
      ...(target.tagName !== "INPUT" && { ArrowUp: choose(-1), ArrowDown: choose(1) }),
      ...(target.tagName !== "BUTTON" && { " ": () => this.togglePlay() }),
    };
    return acts[key];
  }

  get at() {
    return this.view.step;
  }

  get last() {
    return this.pool.steps.length - 1;
  }

  go(step: number) {
    this.change({ step });
  }

  /** Change the view and draw it. */
  change(wanted: Partial<PoolView["view"]>) {
    const next = { ...this.view, ...wanted };
    next.step = Math.max(0, Math.min(this.last, next.step));
    if (next.step === this.view.step && next.request === this.view.request) return;
    this.view = next;
    this.keepAddress();
    this.draw();
  }

  /** What was drawn under this name, as long as it looks the same: most of 512 pages do, from step to step. */
  asBefore(name: string, looks: unknown[], draw: () => ComponentChild) {
    const key = String(looks);
    const before = this.kept.get(name);
    if (before?.key === key) return before.node;
    const node = draw();
    this.kept.set(name, { key, node });
    return node;
  }

  /** A long run is wider than its box: what is now stays in it. */
  keepInSight() {
    const { line, step, scrolls } = pools.poolLayout(this.pool, this.width);
    const box = this.root.querySelector(".wid-lanes");
    const [left, room] = [this.view.step * step, this.width - line];
    if (!box || !scrolls) return;
    if (left < box.scrollLeft || left + step > box.scrollLeft + room) box.scrollLeft = left - room / 2;
  }

  /** Light up what is under the pointer. */
  point({ target }: Event & { target: any }) {
    const { page, request } = target.closest("[data-page], [data-request]")?.dataset ?? {};
    const about = page ? { page: Number(page) } : request ? { request: Number(request) } : null;
    if (JSON.stringify(about) === JSON.stringify(this.about)) return;
    this.about = about;
    super.draw();
  }

  draw() {
    this.root.dataset.step = String(this.view.step + 1);
    super.draw();
    this.keepInSight();
  }

  template() {
    const { pool, view } = this;
    const moment = pools.momentAt(pool, view.step);
    const about = this.about ?? (view.request === null ? null : { request: view.request });
    const lit = pools.litBy(moment, about);
    const layout = pools.poolLayout(pool, this.width);
    const point = (event: Event) => this.point(event);
    return (
      <>
        {this.controls()}
        <Sentence parts={this.sentences[view.step]} longest={[this.longest]} />
        {this.counts()}
        <div class="wid-pooled" onPointerOver={point} onPointerLeave={point}>
          <div class="wid-time">
            {layout.line > 0 && this.line(layout, lit)}
            {this.lanes(layout, lit)}
          </div>
          <p class="wid-further soft" hidden={!layout.scrolls}>
            {POOL.scrolls}
          </p>
          <Legend items={this.legend} />
          {this.paged && this.pages(layout, moment, lit)}
        </div>
        {this.paged && this.aboutPages(moment, about)}
      </>
    );
  }

  aboutPages(moment: Moment, about: Pointed | null) {
    const { pool, view } = this;
    return (
      <>
        <p class="wid-readout soft">
          {(about && pools.pointedAt(pool, view.step, moment, about)) || POOL.point}
        </p>
        <Legend
          items={Object.entries(POOL.pagelegend).map(([kind, said]) => [`wid-page ${kind}`, "", said])}
        />
        <div class="wid-unseen" role="note" aria-label={POOL["in words"]}>
          {pools.describePool(pool, view.step, moment).map((line) => (
            <p>{line}</p>
          ))}
        </div>
      </>
    );
  }

  controls() {
    const { step, request } = this.view;
    return (
      <div class="wid-controls">
        {this.buttons(POOL.step, fillText(POOL.at, { step: step + 1, steps: this.last + 1 }))}
        <Switch
          {...{ label: POOL.request, names: [POOL.nobody, ...this.pool.marks] }}
          chosen={request === null ? 0 : request + 1}
          choose={(i) => this.change({ request: i ? i - 1 : null })}
        />
      </div>
    );
  }

  counts() {
    const { pool, view } = this;
    return (
      <div class="wid-counts">
        {(this.paged ? pools.COUNTED : pools.NO_PAGES).map((what) => {
          const { now, soFar, sum } = pools.countAt(pool, view.step, what);
          const most = what === "used" ? pool.n_pages : what === "run" ? pool.budget : null;
          const shown = most ? fillText(POOL.of, { used: now, pages: most }) : now;
          return (
            <span class="wid-counter" data-count={what}>
              <b>{shown.toLocaleString("en")}</b>
              {POOL.counts[what]}
              <i>{fillText(POOL[sum ? "so far" : "most"], { soFar })}</i>
            </span>
          );
        })}
      </div>
    );
  }

  /** Those who wait, the first on top; who was preempted is marked. */
  line({ line, lane }: ReturnType<typeof pools.poolLayout>, lit: ReturnType<typeof pools.litBy>) {
    const { pool, view } = this;
    const { shown, back, more } = pools.queueOf(pool, view.step, lane);
    return (
      <div class="wid-queue" style={`width:${line}px`}>
        <span class="soft">{POOL.line}</span>
        {shown.map((request) => (
          <span
            class={`wid-chip ${back.includes(request) ? "back" : ""} ${lit.requests.has(request) ? "lit" : ""}`}
            data-request={request}
          >
            {pool.marks[request]}
          </span>
        ))}
        {more > 0 && <span class="soft">+{more}</span>}
      </div>
    );
  }

  lanes(
    { line, lane, step, scrolls }: ReturnType<typeof pools.poolLayout>,
    lit: ReturnType<typeof pools.litBy>,
  ) {
    const { pool, view } = this;
    const jump = ({ currentTarget, clientX }: MouseEvent & { currentTarget: Element }) =>
      this.change({ step: Math.floor((clientX - currentTarget.getBoundingClientRect().left) / step) });
    const end = step * pool.steps.length;
    const size = `width:${end}px;height:${lane * pool.lanes}px;--lane:${lane}px`;
    return (
      <div
        class="wid-lanes"
        style={`max-width:calc(100% - ${line}px)`}
        role="img"
        aria-label={POOL.time}
        tabIndex={scrolls ? 0 : undefined}
        {...QUIET}
      >
        <div class="wid-slots" style={size} onClick={jump}>
          {this.asBefore("stays", [this.width, ...lit.requests], () =>
            pool.stays.map((stay) => (
              <Stay
                {...{ stay, lane, step }}
                mark={pool.marks[stay.request]}
                pattern={this.paged ? pools.patternOf(stay.request) : 0}
                lit={lit.requests.has(stay.request)}
              />
            )),
          )}
          <i class="wid-coming" style={`left:${(view.step + 1) * step}px`} />
          <i class="wid-now" style={`left:${view.step * step}px;width:${step}px`} />
        </div>
        <div class="wid-ticks soft" style={`width:${end}px`}>
          {pools.ticksOf(pool, step).map((n) => (
            <span style={`left:${Math.min((n + 0.5) * step, end - 4 * String(n + 1).length)}px`}>
              {n + 1}
            </span>
          ))}
        </div>
      </div>
    );
  }

  pages(
    { columns, page, high }: ReturnType<typeof pools.poolLayout>,
    { pages }: Moment,
    lit: ReturnType<typeof pools.litBy>,
  ) {
    const { pool, view } = this;
    const grid = `grid-template-columns:repeat(${columns},${page}px);grid-auto-rows:${high}px`;
    return (
      <div
        class={`wid-pages ${page < NUMBERED ? "wid-close" : ""}`}
        role="img"
        aria-label={POOL.pages}
        style={grid}
      >
        {pages.map((one, number) => {
          const place = lit.places.get(number);
          const looks = [page, place, Object.values(one), one.taken && view.step];
          return this.asBefore(`page ${number}`, looks, () => (
            <Page {...{ one, number, page, high, step: view.step, pool, place }} />
          ));
        })}
      </div>
    );
  }
}

/** A request's time in a slot: a band in its pattern, its prompt and its words told apart. */
function Stay({
  stay: { request, slot, from, to, back, blocks },
  mark,
  pattern,
  lane,
  step,
  lit,
}: {
  stay: ReturnType<typeof pools.staysOf>[number];
  mark: string;
  pattern: number;
  lane: number;
  step: number;
  lit: boolean;
}) {
  const place = `top:${slot * lane}px;left:${from * step}px;width:${(to - from) * step}px`;
  return (
    <div
      class={`wid-stay p${pattern} ${back ? "back" : ""} ${lit ? "lit" : ""}`}
      style={place}
      data-request={request}
    >
      {blocks.map((block) => (
        <i class={`wid-doing ${block.kind}`} style={`flex-grow:${block.to - block.from}`}>
          {pools.fitsIn(mark, (block.to - block.from) * step, lane) && <b>{mark}</b>}
        </i>
      ))}
    </div>
  );
}

/** A page: the letters of all its owners, its entries; its number, or its place in the table that is pointed at. */
function Page({
  one,
  number,
  page,
  high,
  step,
  pool,
  place,
}: {
  one: Moment["pages"][number];
  number: number;
  page: number;
  high: number;
  step: number;
  pool: pools.Pool;
  place: number | undefined;
}) {
  const { state, text, filled, fresh } = pools.pageOf(pool, one, { page, high });
  return (
    <div
      class={`wid-page ${state} p${pools.patternOf(one.holder)} ${place === undefined ? "" : "lit"}`}
      data-page={number}
    >
      {filled > 0 && <i class="wid-filled" style={`width:${filled}%`} />}
      {fresh && <i class="wid-filled new" style={`left:${fresh[0]}%;width:${fresh[1]}%`} />}
      {one.taken && <i class="wid-taken" key={step} />}
      {(place !== undefined || page >= NUMBERED) && <small>{place ?? number}</small>}
      <b>{text}</b>
    </div>
  );
}
