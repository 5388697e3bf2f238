// Numbers of the page's decoder for tests/test_live_decoder.py. Reads one JSON object, writes another:
// file: a model's; texts: lists of passes with one cache, each a list of ids that run, or a number of tokens to cut
// back to; sampled: [logits, temperature]; draws: [seed, probabilities, how many].
import { readFileSync, writeFileSync } from "node:fs";
import { KVCache } from "../../helpers/stepper/js/live/cache.ts";
import { Decoder } from "../../helpers/stepper/js/live/decoder.ts";
import { openGguf } from "../../helpers/stepper/js/live/gguf.ts";
import { openSafetensors } from "../../helpers/stepper/js/live/safetensors.ts";
import { draw, mulberry32, nextProbabilities } from "../../helpers/stepper/js/live/sample.ts";

const { file, texts = [], sampled = [], draws = [] } = JSON.parse(readFileSync(0, "utf8"));
const done = { logits: [], sampled: [], draws: [] };

if (texts.length) {
  const bytes = readFileSync(file);
  const { config, weights } = file.endsWith(".gguf")
    ? await openGguf(new Blob([bytes]))
    : openSafetensors(Uint8Array.from(bytes).buffer);
  const decoder = new Decoder(config, weights);
  for (const passes of texts) {
    const cache = new KVCache(config);
    const ran = passes.map((pass) => (pass.length ? decoder.forward(pass, cache) : cache.truncate(pass)));
    const all = Buffer.concat(ran.filter(Boolean).map((logits) => Buffer.from(logits.buffer)));
    done.logits.push(all.toString("base64"));
  }
}
done.sampled = sampled.map(([logits, temperature]) => [
  ...nextProbabilities(Float32Array.from(logits), temperature),
]);
done.draws = draws.map(([seed, probabilities, n]) => {
  const random = mulberry32(seed);
  return Array.from({ length: n }, () => draw(Float64Array.from(probabilities), random()));
});
writeFileSync(1, JSON.stringify(done));
