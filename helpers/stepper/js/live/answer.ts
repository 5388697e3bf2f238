// What the Worker says to what it is asked (protocol.d.ts), one request after the other; only "stop" is heard at once.
import { KVCache } from "./cache.ts";
import { Decoder, type Watch } from "./decoder.ts";
import { openGguf } from "./gguf.ts";
import { Recorder } from "./record.ts";
import { openSafetensors } from "./safetensors.ts";
import { chooser, likeliest, settingsInWords, softmax } from "./sample.ts";
import { lookUp, Stopped, type Job } from "./stop.ts";
import { chatPrompt } from "./tokens.ts";
import type { Opened, Tell } from "./opened";
import type { Ask, Answer, Said, Settings } from "./protocol";

/** How each kind of file is opened. */
const OPENERS: Record<string, (file: ArrayBuffer | Blob, tell: Tell) => Opened | Promise<Opened>> = {
  safetensors: async (file) => openSafetensors(file instanceof Blob ? await file.arrayBuffer() : file),
  gguf: openGguf,
};
const N_TOP = 5; // candidates told of each pass
const PATIENCE = 10; // milliseconds of work after which it looks up whether it is to stop

/** A conversation: the function that takes what is asked. */
export function conversation(say: (answer: Answer) => void) {
  const jobs: Job[] = [];
  const session = new Session(say);
  let last = Promise.resolve();
  return (ask: Ask) => {
    if (ask.do === "stop") {
      for (const job of jobs) job.stopped = true;
      return;
    }
    const job = { ask, stopped: false };
    jobs.push(job);
    last = last.then(() => session.run(job)).then(() => void jobs.shift());
  };
}

/** What is said of an error. Browsers call memory that is not there by several names. */
function told(error: any) {
  const { message } = error?.cause ?? error;
  return /alloc|out of memory|array (buffer )?length/i.test(message)
    ? `this page got no more memory (${message}); expected enough for the model and its KV cache: ` +
        "close other pages and programs, take a shorter text or a smaller model"
    : error.message;
}

class Session {
  declare say: (answer: Answer) => void;

  /** Set by `load`, which is asked for before all else. */
  loaded: { opened: Opened; decoder: Decoder };
  /** The text that was written last, and its cache. */
  kept: { text: number[]; cache: KVCache } | null = null;

  constructor(say: (answer: Answer) => void) {
    this.say = say;
  }

  async run(job: Job) {
    try {
      const answer: (ask: any, job: Job) => unknown = this[job.ask.do];
      await answer.call(this, job.ask, job);
    } catch (error) {
      this.say({ id: job.ask.id, op: "failed", say: error instanceof Error ? told(error) : String(error) });
    }
  }

  async load({ id, file, kind }: Extract<Ask, { do: "load" }>, job: Job) {
    const opened = await OPENERS[kind](file, async (done) => {
      this.say({ id, op: "progress", done });
      await lookUp(job);
    });
    const decoder = new Decoder(opened.config, opened.weights); // where this raises, the model before stays
    this.loaded = { opened, decoder };
    this.kept = null;
    const { name, config, tokenizer, bytes, chatTemplate } = opened;
    this.say({ id, op: "loaded", name, config, vocabulary: tokenizer.vocabulary, bytes, chatTemplate });
  }

  tokenize({ id, text, chat }: Extract<Ask, { do: "tokenize" }>) {
    const { opened } = this.loaded;
    const tokens = opened.tokenizer.encode(chat ? chatPrompt(opened.chatTemplate, text) : text);
    this.say({ id, op: "tokens", tokens, texts: this.texts(tokens) });
  }

  async write(ask: Extract<Ask, { do: "write" }>, job: Job) {
    const { opened, decoder } = this.loaded;
    const { id, tokens, record } = ask;
    const cache = !ask.cache ? null : ask.resume ? this.resumed(tokens) : new KVCache(decoder.config);
    const recorder = record.length ? new Recorder(opened, tokens, record, ask.cache) : null;
    const begun = performance.now();
    const reply = [];
    let why: Extract<Answer, { op: "written" }>["why"] = "stopped";
    try {
      for await (const { end, ...pass } of this.passes(ask, tokens, cache, job, recorder)) {
        reply.push(pass.said.token);
        this.say({ id, op: "pass", ...pass });
        why = end ?? why;
      }
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
    }
    if (cache && !ask.resume) this.kept = { text: [...tokens, ...reply], cache };
    this.say({
      id,
      op: "written",
      tokens: reply,
      why,
      ms: performance.now() - begun,
      trace: recorder?.trace ?? null,
    });
  }

  /** A cache with what this text and the kept one begin with; the last token is to run, for its logits. */
  resumed(tokens: number[]) {
    if (!this.kept) return new KVCache(this.loaded.decoder.config);
    const { text, cache } = this.kept;
    const most = Math.min(tokens.length - 1, cache.length);
    const differs = tokens.slice(0, most).findIndex((token, i) => token !== text[i]);
    return cache.prefix(differs < 0 ? most : differs);
  }

  async change(ask: Extract<Ask, { do: "change" }>, job: Job) {
    const { decoder } = this.loaded;
    const { id, before, now } = ask;
    const [kept, fresh] = [new KVCache(decoder.config), new KVCache(decoder.config)];
    await this.pass(before, kept, job);
    await this.pass(now, fresh, job);
    const stale = (kind: "k" | "v") =>
      kept[kind].map((rows, n) => differences(rows, fresh[kind][n], kept.width, now.length));
    const [k, v] = [stale("k"), stale("v")];
    const replies = [];
    for (const cache of [kept, fresh]) {
      cache.truncate(now.length - 1); // the last token is processed again, since the next one comes of its logits
      const tokens = [];
      for await (const { said } of this.passes(ask, now, cache, job)) tokens.push(said.token);
      replies.push({ tokens, texts: this.texts(tokens) });
    }
    this.say({ id, op: "changed", k, v, stale: replies[0], fresh: replies[1] });
  }

  /**
   * Go on from a text, pass by pass: run what the cache does not hold, choose a token. Without a cache run it all.
   * The last one says in `end` why it is.
   */
  async *passes(
    { steps, settings, noEos = false }: { steps: number; settings: Settings; noEos?: boolean },
    prompt: number[],
    cache: KVCache | null,
    job: Job,
    recorder: Recorder | null = null,
  ) {
    const { eosIds, maxSeqLen } = this.loaded.decoder.config;
    const choose = chooser(settings);
    const text = [...prompt];
    const adds = this.loaded.opened.tokenizer.decodeStream();
    for (const token of prompt) adds(token);
    for (let left = steps; left--;) {
      const begun = performance.now();
      const phase: "prefill" | "decode" = left === steps - 1 ? "prefill" : "decode";
      const tokens = text.slice(cache?.length ?? 0);
      recorder?.openPass(phase, cache);
      const logits = await this.pass(tokens, cache, job, recorder?.attended);
      if (noEos) for (const eos of eosIds) logits[eos] = -Infinity;
      const token = choose(logits);
      const ms = performance.now() - begun;
      text.push(token);
      const isEos = eosIds.includes(token);
      const end: "eos" | "full" | "steps" | null = isEos
        ? "eos"
        : text.length > maxSeqLen
          ? "full"
          : left
            ? null
            : "steps";
      const said = this.said(logits, token, adds(token, end !== null));
      recorder?.closePass(said.top, token, settingsInWords(settings));
      yield { phase, tokensRun: tokens.length, cached: cache?.length ?? 0, ms, said, end };
      if (end) return;
    }
  }

  /** Run tokens through all layers, and look up now and then; the logits of the last one, (V,). */
  async pass(tokens: number[], cache: KVCache | null, job: Job, watch?: Watch) {
    const layers = this.loaded.decoder.layerByLayer(tokens, cache ?? undefined, { lastOnly: true, watch });
    for (let lookedUp = -Infinity; ;) {
      if (performance.now() - lookedUp > PATIENCE) {
        await lookUp(job);
        lookedUp = performance.now();
      }
      const { done, value } = layers.next();
      if (!done) continue;
      if (value.every(Number.isFinite)) return value;
      throw new Error(
        "the logits hold NaN or infinity; expected numbers: the weights are damaged, take another file",
      );
    }
  }

  /** A token with the likeliest ones; `text` is what it adds to the text. */
  said(logits: Float32Array, token: number, text: string): Said {
    const best = likeliest(logits, N_TOP);
    if (!best.includes(token)) best[best.length - 1] = token;
    const p = softmax(logits);
    const top: Said["top"] = best.map((i) => [this.loaded.opened.tokenizer.text(i), logits[i], p[i]]);
    return { token, text, probability: p[token], top };
  }

  /** What each token adds to those before it. */
  texts(tokens: number[]) {
    const adds = this.loaded.opened.tokenizer.decodeStream();
    return tokens.map((token, i) => adds(token, i === tokens.length - 1));
  }
}

/** Of each row: the largest difference of its numbers, over the largest number of all. */
function differences(a: Float32Array, b: Float32Array, width: number, S: number) {
  let largest = 0;
  const most = new Array(S).fill(0);
  for (let i = 0; i < S * width; i++) {
    const row = Math.floor(i / width);
    largest = Math.max(largest, Math.abs(b[i]));
    most[row] = Math.max(most[row], Math.abs(a[i] - b[i]));
  }
  return most.map((x) => x / largest);
}
