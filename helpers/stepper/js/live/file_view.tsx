// Your own model: a GGUF file from the reader's disk, or one that lies beside the page, goes on with a text. It is read
// in the page, by a Worker of its own; times are those of the clock.
import { Component } from "preact";
import VIEW from "../../view.json" with { type: "json" };
import { clippedText, fillText, formatUnit, visibleText } from "../format.ts";
import { Button, QUIET, Switch } from "../parts.tsx";
import { StepperView } from "../stepper.tsx";
import { Again } from "./again.tsx";
import { Drawer, Sizes } from "./drawer.tsx";
import { startLive } from "./start.ts";
import { Talk } from "./talk.ts";
import { addPass, doneAt, emptyLane, meansGo, entryBytes, timeOf, tokensOf, type Lane } from "./writing.ts";
import type { Host, Token, Write } from "./parts";
import type { Config } from "./protocol";
import type { Trace } from "../schema";

const OWN = VIEW.live.own;
const CHAT = "<|im_start|>"; // the one kind of chat template that is known
const SETTINGS = { temperature: 0, seed: 0 };

type Act = "again" | "board";

/** What the board shows: of the first, the middle and the last layer or head, those that there are. */
const chosen = (n: number) => [...new Set([0, n >> 1, n - 1])];

const recorded = ({ nLayers, nHeads }: Config): [number, number][] =>
  chosen(nLayers).flatMap((layer) => chosen(nHeads).map((head) => [layer, head] as [number, number]));

export class OwnModel extends Component<{ view: Host }> {
  talk: Talk | null = null;
  /** The fold that it is in. */
  place: HTMLDetailsElement;
  /** What the Worker said of the model. */
  model: any = null;
  /** What is being fetched or opened. */
  opening: { name: string; done: number; of: number; stop: () => void } | null = null;
  said = "";
  text = OWN.text;
  asks = true; // the text is to be a question, where the model was trained to answer
  asked = false; // what is written is an answer
  ended = ""; // why it is no longer
  factor = 1; // times are as they were
  noEos = true; // no race longer than the text is offered
  ticket = {}; // whose answers count

  // of what was written, as the parts of a live view ask for it
  prompt: Token[] = [];
  lane = emptyLane();
  plain: Lane | null = null;
  guess: number | null = null;
  begun = 0; // when, by the page's clock
  t = 0; // milliseconds since then
  playing = false;
  act: Act | null = null;
  trace: any = null;

  /** What the parts of a live view read; one larger model is enough to compare with. */
  get data() {
    const { data } = this.props.view;
    return { ...data, compared: data.compared.slice(-1) };
  }

  get still() {
    return this.props.view.still;
  }

  componentDidMount() {
    this.props.view.own = this;
  }

  componentWillUnmount() {
    this.ticket = {};
    this.opening?.stop();
    this.talk?.end();
  }

  draw() {
    this.forceUpdate();
  }

  /** Say something, with nothing going on. */
  say(said: string) {
    Object.assign(this, { said, opening: null });
    this.draw();
  }

  /** Open up with a text that the small model cannot read, and fetch the larger one. */
  take(text: string) {
    this.stop();
    this.clear();
    this.text = text;
    const { place } = this;
    place.open = true;
    place.scrollIntoView({ block: "start", behavior: this.still.matches ? "auto" : "smooth" });
    place.querySelector("summary")?.focus({ preventScroll: true });
    if (this.model || this.opening) return this.draw();
    return this.fetchFile();
  }

  /** Fetch the file that lies beside the page. */
  async fetchFile() {
    const { file, bytes } = this.props.view.larger as NonNullable<Host["larger"]>;
    const stopped = new AbortController();
    this.opening = { name: file, done: 0, of: bytes, stop: () => stopped.abort() };
    this.said = fillText(OWN.fetching, { name: file });
    this.draw();
    try {
      const answer = await fetch(encodeURIComponent(file), { signal: stopped.signal });
      if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
      const parts = [];
      const stream = answer.body as any; // what TypeScript knows of it cannot be gone through
      for await (const part of read(stream.getReader())) {
        parts.push(part);
        this.opening.done += part.length;
        this.draw();
      }
      await this.open(new File(parts, file));
    } catch (error) {
      const why = (error as Error).message;
      this.say(stopped.signal.aborted ? OWN.stopped : fillText(OWN.unreachable, { name: file, why }));
    }
  }

  /** Open a file; where that fails, what was open stays. */
  async open(file: File | undefined) {
    if (!file) return;
    this.talk ??= new Talk(startLive, (said) => this.died(said));
    const { talk } = this;
    this.opening = { name: file.name, done: 0, of: file.size, stop: () => talk.stop() };
    this.said = fillText(OWN.opening, { name: file.name, bytes: formatUnit(file.size, "B") });
    this.draw();
    const answer = await talk.ask({ do: "load", file, kind: "gguf" }, ({ done }) => {
      if (this.opening) this.opening.done = done;
      this.draw();
    });
    if (answer.op === "failed")
      return this.say(/^stopped/.test(answer.say) ? OWN.stopped : `${file.name}: ${answer.say}`);
    this.clear();
    this.model = { ...answer, file: file.name };
    this.asks = this.chats;
    this.say("");
  }

  /** The Worker is gone, and the model with it. */
  died(said: string) {
    this.model = null;
    this.refuse(said);
  }

  dropped(event: DragEvent) {
    event.preventDefault();
    event.stopPropagation();
    if (this.opening || !event.dataTransfer) return;
    (event.currentTarget as HTMLDetailsElement).open = true;
    this.stop();
    this.open(event.dataTransfer.files[0]);
  }

  get chats() {
    return Boolean(this.model.chatTemplate?.includes(CHAT));
  }

  clear() {
    this.ticket = {};
    Object.assign(this, {
      prompt: [],
      lane: emptyLane(),
      plain: null,
      guess: null,
      trace: null,
      act: null,
      asked: false,
      ended: "",
    });
    Object.assign(this, { t: 0, playing: false, said: "" });
  }

  refuse(said: string) {
    this.clear();
    this.say(said);
  }

  pressed(event: KeyboardEvent & { target: any; currentTarget: any }) {
    event.stopPropagation();
    const typing = event.target.tagName === "TEXTAREA";
    if (event.key === "Escape") this.stop();
    else if (typing && meansGo(event)) {
      event.preventDefault();
      this.write();
      if (this.playing) event.currentTarget.firstChild.focus({ preventScroll: true }); // the box goes, keys are to be heard
    }
  }

  /** Let the model go on with the text, with the cache. */
  async write() {
    if (this.opening) return;
    if (!this.text.trim()) return this.refuse(OWN.empty);
    this.clear();
    this.playing = true;
    const mine = this.ticket;
    const { talk, model, asks } = this;
    this.draw();
    const cut = await talk?.ask({ do: "tokenize", text: this.text, chat: asks });
    if (mine !== this.ticket) return;
    if (cut.op === "failed") return this.refuse(cut.say);
    this.asked = asks;
    this.prompt = tokensOf(cut);
    this.play();
    const answer = await this.run(this.lane, true, OWN.steps, recorded(model.config));
    if (mine !== this.ticket) return;
    this.trace = answer.trace;
    this.ended = fillText(OWN.ends[answer.why as keyof typeof OWN.ends] ?? "", {
      out: this.lane.passes.length,
    });
    this.draw();
  }

  /** The same words without the cache, beside those with it. */
  async race(guess: number | null) {
    const plain = emptyLane();
    Object.assign(this, { guess, plain, ticket: {} });
    this.play();
    await this.run(plain, false, this.lane.passes.length, []);
  }

  /** A run of the model into a lane. */
  async run(lane: Lane, cache: boolean, steps: number, record: [number, number][]) {
    const mine = this.ticket;
    const tokens = this.prompt.map(({ id }) => id);
    const asked: Write = { do: "write", tokens, steps, cache, noEos: false, settings: SETTINGS, record };
    const answer = await this.talk?.ask(asked, (pass) => {
      if (mine === this.ticket && !lane.over) addPass(lane, pass);
    });
    lane.over = true;
    if (mine === this.ticket && answer.op === "failed") this.refuse(answer.say);
    return answer;
  }

  /** The clock runs until all that was asked for is out. */
  play() {
    const mine = this.ticket;
    this.begun = performance.now();
    const frame = () => {
      if (mine !== this.ticket) return;
      this.t = performance.now() - this.begun;
      this.playing = !this.lanes.every((lane) => lane.over && timeOf(lane) <= this.t);
      if (this.playing) requestAnimationFrame(frame);
      this.draw();
    };
    frame();
  }

  get lanes() {
    return this.plain ? [this.lane, this.plain] : [this.lane];
  }

  /** Stop at once what goes on; what is out stays. */
  stop() {
    this.opening?.stop();
    if (!this.playing) return;
    this.talk?.stop();
    this.begun = -Infinity; // no more is to come, so what is out is all shown
    for (const lane of this.lanes) lane.over = true;
    if (!this.lane.passes.length) this.clear();
    this.draw();
  }

  get out() {
    const done = this.plain ? undefined : doneAt(this.lane, this.t);
    return this.lane.passes.slice(0, done).map(({ said }) => ({ id: said.token, text: said.text }));
  }

  render() {
    const { opening, model, said } = this;
    const published = this.props.view.larger;
    const over = (event: DragEvent) => {
      event.preventDefault();
      event.stopPropagation();
    };
    return (
      <details
        class="wid-own"
        ref={(place: any) => void (this.place = place)}
        onKeyDown={(event) => this.pressed(event)}
        onDragOver={over}
        onDrop={(event) => this.dropped(event)}
      >
        <summary {...QUIET}>{OWN.name}</summary>
        <div>
          <p>{OWN.invite}</p>
          {opening ? (
            <Opening {...opening} />
          ) : (
            <div class="wid-buttons">
              <Choose open={(file: File | undefined) => (this.stop(), this.open(file))} />
              {published && (
                <Button onClick={() => this.fetchFile()}>
                  {fillText(OWN.fetch, { name: published.file, bytes: formatUnit(published.bytes, "B") })}
                </Button>
              )}
            </div>
          )}
          <p class="wid-told soft" role="status" hidden={!said}>
            {said && visibleText(said)}
          </p>
          {model && <Desk own={this} />}
        </div>
      </details>
    );
  }
}

/** The parts of a stream; not every browser can go through one. */
async function* read(reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>) {
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

function Choose({ open }: { open: (file: File | undefined) => unknown }) {
  let box: HTMLInputElement | null;
  const chosen = ({ currentTarget: input }: { currentTarget: HTMLInputElement }) => {
    open(input.files?.[0]);
    input.value = ""; // the same file may be chosen again
  };
  return (
    <>
      <Button onClick={() => box?.click()}>{OWN.choose}</Button>
      <input ref={(input) => void (box = input)} type="file" hidden accept=".gguf" onChange={chosen} />
    </>
  );
}

function Opening({ done, of, stop }: { done: number; of: number; stop: () => void }) {
  const [so, all] = [done, of].map((bytes) => formatUnit(bytes, "B"));
  return (
    <div class="wid-opening">
      <progress max={of} value={done} aria-label={OWN.progress} />
      <span>{fillText(OWN.so, { so, all })}</span>
      <span class="wid-buttons">
        <Button onClick={stop}>{VIEW.live.stop}</Button>
      </span>
    </div>
  );
}

/** A text, the model that goes on with it, and what can be asked of that. */
function Desk({ own }: { own: OwnModel }) {
  const { model, prompt, playing, trace, act, opening } = own;
  const written = prompt.length > 0 && !playing;
  const acts: Act[] = trace && trace.runs[0].passes.length ? ["again", "board"] : ["again"];
  const show = (name: Act) => {
    own.act = name;
    own.draw();
  };
  return (
    <>
      <p class="soft wid-sizes">{sizes(model)}</p>
      {own.chats && !prompt.length && (
        <Switch
          label={OWN.is}
          names={OWN.kinds}
          chosen={own.asks ? 0 : 1}
          choose={(i) => {
            own.asks = i === 0;
            own.draw();
          }}
        />
      )}
      {prompt.length ? (
        <Running {...{ prompt, out: own.out, playing: playing && !own.plain }} />
      ) : (
        <Box own={own} />
      )}
      <div class="wid-buttons">
        {playing ? (
          <Button class="wid-go" onClick={() => own.stop()}>
            {VIEW.live.stop}
          </Button>
        ) : (
          <Button
            class="wid-go"
            disabled={Boolean(opening)}
            onClick={() => (written ? own.refuse("") : own.write())}
          >
            {written ? VIEW.live.edit : VIEW.live.enter}
          </Button>
        )}
      </div>
      {(own.asked || own.ended) && (
        <p class="soft">
          {own.asked && OWN.template} {own.ended}
        </p>
      )}
      {prompt.length > 0 && !act && <Drawer view={own} />}
      {written && own.lane.passes.length > 0 && (
        <div class={`wid-acts ${act ? "chosen" : ""}`} role="group" aria-label={VIEW.live.acts.label}>
          {acts.map((name) => (
            <Button aria-pressed={act === name} onClick={() => show(name)}>
              {OWN.acts[name]}
            </Button>
          ))}
        </div>
      )}
      {act === "again" && <Again view={own} />}
      {act === "board" && <Recorded trace={trace} key={trace} />}
      {written && own.lane.passes.length > 0 && <Sizes view={own} />}
    </>
  );
}

function sizes({ file, name, bytes, config }: any) {
  const { nLayers: layers, nHeads: heads, nKvHeads: kv } = config;
  return fillText(OWN.loaded, {
    ...{ file, name: clippedText(name, 80), layers, heads, kv, bytes: formatUnit(bytes, "B") },
    entry: formatUnit(entryBytes(config, 1), "B"),
  });
}

function Box({ own }: { own: OwnModel }) {
  return (
    <textarea
      {...QUIET}
      class="wid-paper"
      rows={3}
      aria-label={OWN.box}
      enterkeyhint="go"
      dir="auto"
      maxLength={OWN.characters}
      value={own.text}
      onInput={(event) => (own.text = event.currentTarget.value)}
    />
  );
}

/** Pieces of words as they are, blanks and line breaks among them; what would turn the text around by its code
 * points. */
const asRead = (text: string) => text.replace(/[^ \n]+/g, visibleText);

function Running({ prompt, out, playing }: { prompt: Token[]; out: Token[]; playing: boolean }) {
  const pausing = playing && !out.length;
  return (
    <div class={`wid-paper wid-running ${pausing ? "pausing" : ""}`}>
      <p dir="auto">
        {prompt.map(({ text }) => (
          <span class="wid-token-prompt">{asRead(text)}</span>
        ))}
        {out.map(({ text }) => (
          <span class="wid-token-said">{asRead(text)}</span>
        ))}
        {playing && !pausing && <span class="wid-caret" />}
      </p>
      <p class="wid-unseen" aria-live="polite">
        {out.map(({ text }) => (
          <span>{asRead(text)}</span>
        ))}
      </p>
    </div>
  );
}

/** What was recorded of the run, on the board that a recorded run is played on. */
class Recorded extends Component<{ trace: Trace }> {
  declare view: StepperView | undefined;

  place: any;

  componentDidMount() {
    const { trace } = this.props;
    const options = { start: 0, layer: trace.recorded[0][0], head: null };
    this.view = new StepperView(this.place, trace, options);
  }

  shouldComponentUpdate() {
    return false;
  }

  componentWillUnmount() {
    this.view?.destroy();
  }

  render() {
    return <div ref={(place) => void (this.place = place)} />;
  }
}
