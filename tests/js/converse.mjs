// Asks a model's file, as a page would: node converse.mjs FILE < what to ask, as a list > all answers, as a list.
import { readFileSync, writeFileSync } from "node:fs";
import { conversation } from "../../helpers/stepper/js/live/answer.ts";

const answers = [];
const ask = conversation((answer) => answers.push(answer));
const path = process.argv[2];
const kind = path.endsWith(".gguf") ? "gguf" : "safetensors";
ask({ do: "load", id: -1, file: new Blob([readFileSync(path)]), kind });
for (const asked of JSON.parse(readFileSync(0))) ask(asked);
process.on("exit", () => writeFileSync(1, JSON.stringify(answers)));
