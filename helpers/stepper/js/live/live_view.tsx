// Draws the live view: a text, the model that goes on with it, and what its cache does, by the Worker's own clock.
import VIEW from "../../view.json" with { type: "json" };
import { fill, fillText, formatUnit } from "../format.ts";
import { Button, Parts } from "../parts.tsx";
import { View } from "../view.tsx";
import { Again, raceMark } from "./again.tsx";
import { Change, changeMark, findChange } from "./change.tsx";
import { Drawer, Sizes } from "./drawer.tsx";
import { Draws, findDraws } from "./draws.tsx";
import { OwnModel } from "./file_view.tsx";
import { findLooks, Look, lookMark } from "./look.tsx";
import { Paper } from "./paper.tsx";
import { startLive } from "./start.ts";
import { Talk } from "./talk.ts";
import { findTwice, Twice, twiceMark } from "./twice.tsx";
import { Words } from "./words.ts";
import { addPass, cutAt, doneAt, emptyLane, meansGo, paceOf, timeOf, tokensOf } from "./writing.ts";
import type { Diary, Host, Marks, Write } from "./parts";
import type { Lane } from "./writing.ts";
import type { Parts as Said } from "../types";

type Act = "twice" | "again" | "look" | "change" | "draws";

const LIVE = VIEW.live;
/** What can be done with a text that was written: its panel, what it finds out first, what it makes of a word. */
const ACTS: Record<
  Act,
  { Panel: any; find?: (view: Diary) => Promise<object>; mark: (view: Diary, found: any) => Marks | null }
> = {
  twice: { Panel: Twice, find: findTwice, mark: twiceMark },
  again: { Panel: Again, mark: raceMark },
  look: { Panel: Look, find: findLooks, mark: lookMark },
  change: { Panel: Change, find: findChange, mark: changeMark },
  draws: { Panel: Draws, find: findDraws, mark: () => null },
};

const RUNS = ["on", "long"]; // a run's kinds, as an address has them
const SAID = 3; // words that are read as others, of which it is told

/** Which words of a text were not run. */
const leftOut = (words: string[]): Said =>
  words.length ? [LIVE.left, ...words.flatMap((token, i) => (i ? [", ", { token }] : [{ token }])), "."] : [];

export class LiveView extends View {
  declare data: Diary["data"];
  declare file: () => Promise<ArrayBuffer>;
  declare text: string;
  declare seed: number;

  /** The conversation with the Worker; null before one is needed. */
  talk: Talk | null = null;
  /** What the Worker said of its model, and the model's words. */
  model: any = null;
  words: Words | null = null;
  loading: Promise<void> | undefined;
  /** What is said beside the buttons. */
  said: string | Said = LIVE.invite;
  /** What is typed, as the model reads it; null while the model is not there. */
  read: ReturnType<Words["read"]> | null = null;
  /** The reader's own model, which may be asked what this one cannot read. */
  own: Host["own"] = null;

  // of what was written
  ticket = {}; // whose answers count
  prompt: { id: number; text: string }[] = [];
  lane = emptyLane();
  /** The same words without the cache. */
  plain: Lane | null = null;
  guess: number | null = null;
  noEos = false;
  ran = ""; // what an address tells of it: nothing, a text as it ends, or a long one
  t = 0; // milliseconds of the run that is shown
  factor = 1; // so many times slower is it shown
  playing = false;
  before = 0; // when the frame before this one was drawn
  act: Act | null = null;
  /** What an act has found out about this text. */
  found: Record<string, any> = {};

  /** `file` fetches the model's weights. */
  constructor(el: Element, data: Diary["data"], options: any, file: () => Promise<ArrayBuffer>) {
    super(el, options, "writer", LIVE.label);
    this.data = data;
    this.file = file;
    this.text = options.text;
    this.seed = options.seed;
    this.root.addEventListener("focusin", () => this.load());
    this.root.addEventListener("pointerenter", () => this.load());
    this.start();
  }

  /** Forget what was written: the text can be changed. */
  clear() {
    this.halt();
    this.lane = emptyLane();
    Object.assign(this, { prompt: [], plain: null, guess: null, noEos: false, t: 0, factor: 1 });
    Object.assign(this, { playing: false, act: null, found: {}, ran: "" });
  }

  halt() {
    this.ticket = {};
    this.talk?.stop();
  }

  get settings() {
    return { temperature: this.data.temperature, seed: this.seed };
  }

  /** Of a run all that it takes to run it again, whatever the page has at first by then. */
  state() {
    const { text, seed, options, ran } = this;
    return {
      diary: ran || text !== options.text ? text : null,
      seed: ran || seed !== options.seed ? seed : null,
      run: ran || null,
    };
  }

  /** A run of the text that is shown first. */
  stills() {
    return [{ run: RUNS[0] }];
  }

  goTo(values: Map<string, string>) {
    const { text, seed } = this.options;
    const told = values.get("seed") ?? String(seed);
    const fits = /^\d{1,9}$/.test(told);
    const next = { text: values.get("diary") ?? text, seed: fits ? Number(told) : seed };
    const run = values.get("run") ?? "";
    const known = ["", ...RUNS].includes(run);
    if (next.text !== this.text || next.seed !== this.seed) {
      this.clear();
      Object.assign(this, next);
      this.check();
    }
    if (known && run && run !== this.ran) this.write(run === RUNS[1]);
    return [...(fits ? [] : ["seed"]), ...(known ? [] : ["run"])];
  }

  /** The model is there, or what is wrong is said; asked for once, when somebody comes near. */
  load() {
    this.loading ??= this.fetchModel();
    return this.loading;
  }

  async fetchModel() {
    this.talk ??= new Talk(startLive, (say) => this.lost(say));
    const file = await this.file().catch(() => null);
    if (!file) return this.lost(LIVE.missing);
    const answer = await this.talk.ask({ do: "load", file, kind: "safetensors" });
    if (answer.op === "failed") return this.lost(answer.say);
    this.words = new Words(answer.vocabulary);
    await this.talk.ask(this.asked(this.words.encode(this.options.text), true, { steps: 2 })); // warm
    this.model = answer;
    this.check();
    this.draw();
  }

  /** Say what went wrong; the next try loads the model again. */
  lost(say: string) {
    this.clear();
    this.loading = undefined;
    this.model = null;
    this.said = say;
    this.draw();
  }

  asked(tokens: number[], cache: boolean, more: object = {}): Write {
    const { noEos, settings } = this;
    return { do: "write", tokens, steps: LIVE.most.steps, cache, noEos, settings, record: [], ...more };
  }

  /** A sentence about the model, with its size. */
  sized(sentence: string) {
    const { parameters, bytes } = this.data;
    const values = { parameters: (parameters / 1e6).toFixed(2), bytes: formatUnit(bytes, "B") };
    return fillText(sentence, values);
  }

  keyAction(event: KeyboardEvent & { target: any }) {
    if (event.key === "Escape") return this.playing ? () => this.stop() : null;
    const typing = event.target.tagName === "TEXTAREA" || event.target === this.root;
    return typing && meansGo(event) ? () => this.go() : null;
  }

  typed(text: string) {
    this.text = text;
    this.check();
    this.keepAddress();
    this.draw();
  }

  /** Say how the model reads what is typed, and whether it can. */
  check() {
    this.read = this.words && this.words.read(this.text);
    const { unknown, changed, dropped, text } = this.read ?? { unknown: null, changed: [], dropped: [] };
    const kind = unknown?.meant.length ? LIVE.perhaps : LIVE.unknown[text ? 1 : 0];
    const said = unknown
      ? fill(kind, { token: { token: unknown.word } })
      : [
          ...changed
            .slice(0, SAID)
            .flatMap(([from, to]) => fill(LIVE.changed, { from: { token: from }, to: { token: to } })),
          ...(dropped.length ? fill(LIVE.dropped, { marks: { token: dropped.join(" ") } }) : []),
        ];
    this.said = said.length ? said : LIVE.invite;
  }

  /** A word for which the model has none, and what is offered for it. */
  get unknown() {
    return this.read?.unknown ?? null;
  }

  /** The larger model that lies beside the page, where it can be fetched. */
  get larger() {
    const { published } = this.options;
    return published && location.protocol !== "file:" ? published : null;
  }

  /** What the large button does. */
  go() {
    if (this.playing) return this.stop();
    if (this.lane.over) this.seed++;
    return this.write();
  }

  /** Let the model go on with the text, with the cache. */
  async write(noEos = false) {
    this.clear();
    Object.assign(this, { noEos, playing: true, said: this.model ? "" : this.sized(LIVE.loading) });
    this.ran = RUNS[noEos ? 1 : 0];
    this.keepAddress();
    if (!this.reading) {
      this.root.focus({ preventScroll: true }); // the box goes, and keys are to be heard
      if (this.root.classList.contains("wid-small")) this.toTop();
    }
    this.draw();
    const mine = this.ticket;
    await this.load();
    if (mine !== this.ticket) return;
    if (this.model) this.check();
    const read = this.model && this.read;
    const readable = read && (read.text || !read.unknown); // else it knows no word of it
    const tokens = readable && (await this.talk?.ask({ do: "tokenize", text: read.text }));
    if (mine !== this.ticket) return;
    const wrong = this.complaint(tokens);
    if (wrong) return this.refuse(wrong);
    this.prompt = tokensOf(tokens);
    this.said = leftOut(read.left);
    const { lane } = this;
    const steps = noEos ? LIVE.most.long : LIVE.most.steps;
    this.play(mine);
    const answer = await this.run(lane, tokens.tokens, true, { steps });
    if (mine === this.ticket && answer.op === "failed") this.refuse([answer.say]);
  }

  /** What is wrong with a text by the Worker's answer, or null. */
  complaint(answer: any): string | Said | null {
    if (!answer) return [this.said].flat();
    const got = answer.tokens?.length;
    if (answer.op === "failed") return [answer.say];
    if (got === 0) return [LIVE.empty];
    return got > LIVE.most.words ? fill(LIVE.long, { got, most: LIVE.most.words }) : null;
  }

  refuse(said: string | Said) {
    this.clear();
    this.keepAddress();
    this.said = said;
    this.draw();
  }

  /** A run of the model into a lane. */
  async run(lane: Lane, tokens: number[], cache: boolean, more: object) {
    const mine = this.ticket;
    const answer = await this.talk?.ask(this.asked(tokens, cache, more), (pass) => {
      if (mine !== this.ticket) return;
      addPass(lane, pass);
      if (lane.passes.length === 1 && cache) this.pace();
    });
    if (mine !== this.ticket) return answer;
    lane.over = true;
    return answer;
  }

  /** One factor for all that is shown of a text, with the cache and without: so that the two can be compared. */
  pace() {
    const words = this.noEos ? LIVE.most.long : LIVE.most.usual;
    this.factor = paceOf(this.lane, this.prompt.length, words, LIVE.most.race);
  }

  /** Both lanes from the start, on one clock. */
  async race(guess: number | null) {
    this.guess = guess;
    const tokens = this.prompt.map(({ id }) => id);
    const mine = (this.ticket = {});
    const steps = this.lane.passes.length;
    this.plain = emptyLane();
    const lasting = paceOf(this.lane, this.prompt.length, steps, 2 * LIVE.most.race);
    this.factor = Math.min(this.factor, lasting); // a long reply is not to tire
    this.t = 0;
    this.root.focus({ preventScroll: true });
    this.play(mine);
    const answer = await this.run(this.plain, tokens, false, { steps });
    if (mine === this.ticket && answer.op === "failed") this.refuse([answer.say]);
  }

  get lanes() {
    return this.plain ? [this.lane, this.plain] : [this.lane];
  }

  play(mine: object) {
    this.playing = true;
    this.before = performance.now();
    this.frame(mine, this.before);
  }

  /** One frame; where nothing may move, all that has come at once. */
  frame(mine: object, now: number) {
    if (mine !== this.ticket) return;
    const passed = Math.max(0, Math.min(100, now - this.before));
    this.before = now;
    const end = Math.max(...this.lanes.map(timeOf));
    if (this.still.matches) Object.assign(this, { t: end, factor: 1 });
    else if (this.lane.passes.length) this.t += passed / this.factor;
    const over = this.lanes.every((lane) => lane.over);
    if (over && this.t >= end) {
      this.t = end;
      this.playing = false;
    } else requestAnimationFrame((later) => this.frame(mine, later));
    this.draw();
  }

  /** Stop the model and the clock at once; what is out stays. */
  stop() {
    if (!this.playing) return;
    this.halt();
    this.playing = false;
    this.lane = cutAt(this.lane, this.t);
    this.plain &&= cutAt(this.plain, this.t);
    if (!this.lane.passes.length) this.clear();
    this.keepAddress();
    this.draw();
  }

  /** Write a long text, whatever the model thinks of its end, and then race. */
  async long() {
    const written = this.write(true);
    this.act = "again";
    await written;
    if (this.playing) return this.race(null);
  }

  show(act: Act) {
    this.act = act;
    this.toTop();
    const { find } = ACTS[act];
    if (find && !this.found[act]) this.find(act, find(this));
    this.draw();
  }

  /** The text as high up as it goes, so that what is asked of it has room under it, as on a phone. */
  toTop() {
    this.root.scrollIntoView({ block: "start", behavior: this.still.matches ? "auto" : "smooth" });
  }

  /** Wait for what an act wants to know; the last question counts. */
  async find(act: Act, promise: Promise<object>) {
    const [mine, { found }] = [this.ticket, this];
    const what = (found[`${act}?`] = promise);
    const answer = await promise;
    if (mine !== this.ticket || what !== found[`${act}?`]) return;
    found[act] = answer;
    this.draw();
  }

  /** The tokens that are out. */
  get out() {
    const said = this.lane.passes.slice(0, doneAt(this.lane, this.t)).map((pass) => pass.said);
    return said.map(({ token, text }) => ({ id: token, text }));
  }

  draw() {
    if (this.width <= 0) return;
    this.colours();
    super.draw();
  }

  template() {
    const { playing, prompt, lane } = this;
    const written = lane.over && !playing;
    const act = this.act && (written || this.plain) && ACTS[this.act];
    const found = this.act && this.found[this.act];
    const label = playing ? LIVE.stop : written ? LIVE.another : LIVE.enter;
    return (
      <>
        <Paper view={this} mark={act && this.marks(act, found)} />
        <div class="wid-controls">
          <div class="wid-buttons">
            <Button class="wid-go" onClick={() => this.go()}>
              {label}
            </Button>
            {written && <Button onClick={() => this.refuse(LIVE.invite)}>{LIVE.edit}</Button>}
          </div>
          <p class="wid-hint" role="status" hidden={!this.said.length}>
            {typeof this.said === "string" ? this.said : <Parts parts={this.said} />}
            {this.unknown && !prompt.length && this.offers()}
          </p>
        </div>
        {!prompt.length && <p class="wid-knows">{fillText(LIVE.knows, { known: this.data.known })}</p>}
        <p class="soft wid-who">{this.sized(LIVE.who)}</p>
        {prompt.length > 0 && !act && <Drawer view={this} />}
        {written && (
          <div class={`wid-acts ${act ? "chosen" : ""}`} role="group" aria-label={LIVE.acts.label}>
            {(Object.keys(ACTS) as Act[]).map((name) => (
              <Button
                aria-label={LIVE.acts[name][0]}
                aria-pressed={this.act === name}
                onClick={() => this.show(name)}
              >
                {LIVE.acts[name][act ? 1 : 0]}
              </Button>
            ))}
          </div>
        )}
        {act && found?.failed && <p class="wid-act">{found.failed}</p>}
        {act && !found?.failed && (found || !act.find) && <act.Panel view={this} found={found} />}
        {written && <Sizes view={this} />}
        <OwnModel key="own" view={this} />
      </>
    );
  }

  /** What an act makes of each word, as soon as it knows. */
  marks(act: (typeof ACTS)[Act], found: any) {
    return (!act.find || (found && !found.failed)) && act.mark(this, found);
  }

  /** Words to put in the place of one that is not known, and a model that knows it where no word begins so. */
  offers() {
    if (!this.unknown) return null;
    const { word, at, begun, meant } = this.unknown;
    const { larger } = this;
    const put = (known: string) => {
      this.typed(this.text.slice(0, at) + known + this.text.slice(at + word.length));
      this.root.querySelector("textarea")?.focus();
    };
    return (
      <>
        {meant.map((known) => (
          <Button class="wid-offer" onClick={() => put(known)}>
            {known}
          </Button>
        ))}
        {larger && !begun && (
          <Button class="wid-offer" onClick={() => this.own?.take(this.text)}>
            {fillText(LIVE.larger, { name: larger.file, bytes: formatUnit(larger.bytes, "B") })}
          </Button>
        )}
      </>
    );
  }

  destroy() {
    this.halt();
    this.playing = false;
    this.talk?.end();
    super.destroy();
  }
}
