// What readers get without node: the front end and the site's search as a classic script each, and the trace's types
// out of its schema. `npm run build` writes them, `npm run check` asks whether they are current, among other things.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { compile } from "json-schema-to-typescript";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const read = (path) => readFileSync(ROOT + path, "utf8");

// Keys of view.json whose words Python writes, not the views.
const PYTHONS = ["not run", "copy", "search"];
const words = {
  name: "words",
  setup({ onLoad }) {
    onLoad({ filter: /view\.json$/ }, ({ path }) => ({
      contents: JSON.stringify(JSON.parse(readFileSync(path, "utf8")), (key, value) =>
        PYTHONS.includes(key) ? undefined : value,
      ),
      loader: "json",
    }));
  },
};

/** A module and all that it imports as one classic script. */
async function script(entryPoint, more) {
  const { outputFiles } = await build({
    entryPoints: [entryPoint],
    absWorkingDir: ROOT,
    bundle: true,
    minify: true,
    charset: "utf8",
    target: "es2022",
    format: "iife",
    write: false,
    plugins: [words],
    ...more,
  });
  return outputFiles[0].text;
}

/**
 * The views, the templates' library and its licence in one scope, that leaves two functions to what stands around it.
 * The Worker's script stands in it as text: a page from disk can load none.
 */
async function bundle() {
  const licence = read("node_modules/preact/LICENSE").trim();
  const worker = await script("helpers/stepper/js/live/worker.ts");
  return script("helpers/stepper/js/mount.ts", {
    jsx: "automatic",
    jsxImportSource: "preact",
    globalName: "watchItDecode",
    define: { LIVE_WORKER: JSON.stringify(worker) },
    banner: { js: `/*! Made by npm run build out of js/ and of Preact:\n\n${licence}\n*/` },
    footer: { js: "const { mountView, startLive } = watchItDecode;" },
  });
}

/** The script of the page that searches the site. */
async function search() {
  const licence = read("node_modules/minisearch/LICENSE.txt").trim();
  const banner = { js: `/*! Made by npm run build out of search.ts and of MiniSearch:\n\n${licence}\n*/` };
  return script("tools/book/search.ts", { banner });
}

/** Types of a trace. Where the schema has rules that the tool does not know, it is told the same in ways it knows. */
async function types() {
  const schema = JSON.parse(read("helpers/trace/schema.json"));
  const { top } = schema.$defs.Output.properties;
  top.items = { type: "array", items: top.items.prefixItems, minItems: 3, maxItems: 3 };
  return compile(schema, "Record", {
    additionalProperties: false,
    bannerComment: "// Made by npm run build out of helpers/trace/schema.json.",
  });
}

const made = {
  "helpers/stepper/bundle.js": await bundle(),
  "helpers/stepper/js/schema.d.ts": await types(),
  "tools/book/static/search.js": await search(),
};
for (const [path, text] of Object.entries(made))
  if (!process.argv.includes("--check")) writeFileSync(ROOT + path, text);
  else if (read(path) !== text) {
    console.error(`${path} is not what its sources make of it: run npm run build`);
    process.exitCode = 1;
  }
