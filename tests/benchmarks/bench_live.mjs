// Times of the page's decoder, one list a task, in milliseconds: for bench_live.py. Runs in node and in a page's Worker.
import { KVCache } from "../../helpers/stepper/js/live/cache.ts";
import { Decoder } from "../../helpers/stepper/js/live/decoder.ts";
import { openSafetensors } from "../../helpers/stepper/js/live/safetensors.ts";

/** @param {ArrayBuffer} file @param {number} context tokens before @param {number} turns */
export function bench(file, context, turns) {
  const taken = { open: [], prefill: [], cached: [], uncached: [] };
  const time = (task, run) => {
    const begun = performance.now();
    const result = run();
    taken[task].push(performance.now() - begun);
    return result;
  };
  for (let turn = 0; turn < turns; turn++) {
    const decoder = time("open", () => {
      const { config, weights } = openSafetensors(file);
      return new Decoder(config, weights);
    });
    const text = Array.from({ length: context + 1 }, (_, i) => (i * 37) % decoder.config.vocabSize);
    const run = (tokens, cache) => decoder.forward(tokens, cache, { lastOnly: true });
    const cache = new KVCache(decoder.config);
    time("prefill", () => run(text.slice(0, -1), cache));
    for (let n = 0; n < 8; n++) {
      time("cached", () => run(text.slice(-1), cache));
      cache.truncate(context);
    }
    time("uncached", () => run(text));
  }
  return taken;
}
