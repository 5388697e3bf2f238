// What a stepper is turned to: at first, on its other face, out of an address and into one, and by its switches.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as looks from "../../helpers/stepper/js/look.ts";
import { load, record } from "./traces.mjs";

const machines = load("work");
const made = (name, more = {}) => ({
  ...{ record: record(name), machines, face: "story", options: { start: 1, layer: 0, head: null } },
  ...more,
});
const from = (maker, values) => {
  const wrong = [];
  return [looks.shownFrom(maker, new Map(Object.entries(values)), wrong), wrong];
};
/** What an address tells of what is shown, without what it does not tell. */
const told = (maker, shown) =>
  Object.fromEntries(Object.entries(looks.toldShown(maker, shown)).filter(([, value]) => value !== null));

test("at first: the story where it was asked to begin, the lab at Training with a longer prompt", () => {
  const toy = made("toy");
  const [story, lab] = looks.FACES.map((face) => looks.shownAtFirst(toy, face));
  assert.deepEqual([story.event, story.cached, story.chosen.tokens], [1, true, null]);
  assert.deepEqual([lab.event, lab.cached, lab.chosen.tokens], [0, true, 1000]);
  const own = made("toy", { face: "lab", options: { start: 2, layer: 0 } });
  assert.deepEqual(
    looks.FACES.map((face) => looks.shownAtFirst(own, face).event),
    [1, 2],
  );
  assert.equal(looks.shownAtFirst(own, "lab").head, null);
  assert.equal(looks.shownAtFirst(made("toy", { machines: null }), "story").chosen, null);
});

test("what was changed stays on the other face, what was as at first goes to what it is there", () => {
  const toy = made("toy");
  const turned = (more) => looks.turnedTo(toy, { ...looks.shownAtFirst(toy, "story"), ...more }, "lab");
  const seen = ({ event, chosen: { tokens } }) => [event, tokens];
  const { chosen } = looks.shownAtFirst(toy, "story");
  assert.deepEqual(seen(turned({})), [0, 1000]);
  assert.deepEqual(seen(turned({ event: 2 })), [2, 1000]);
  assert.deepEqual(seen(turned({ cached: false })), [1, 1000]);
  assert.deepEqual(seen(turned({ chosen: { ...chosen, tokens: 7 } })), [0, 7]);
});

test("all that can be shown has an address, and comes back from it", () => {
  for (const maker of [made("two"), made("heads"), made("two", { face: "lab" })]) {
    const { layers, recorded } = maker.record;
    for (const face of looks.FACES) {
      const first = looks.shownAtFirst(maker, face);
      assert.deepEqual(told(maker, first), face === maker.face ? {} : { panels: face });
      for (const layer of layers)
        for (const [i, [, head]] of [...recorded.filter(([of]) => of === layer), [layer, null]].entries())
          for (const event of [0, 1, 2]) {
            const cached = maker.record.withoutCache === null || i % 2 === 0;
            const shown = {
              ...first,
              layer,
              head,
              event,
              cached,
              row: i % 2,
              ahead: face === "lab" && i > 1,
            };
            assert.deepEqual(from(maker, told(maker, shown)), [shown, []]);
          }
    }
  }
});

test("an address is counted from 1, and made by hand leads to the nearest there is", () => {
  const two = made("two");
  const first = looks.shownAtFirst(two, "story");
  const shown = { ...first, event: 2, cached: false, layer: 1, head: 3, row: 4 };
  const names = { pass: 3, cache: "off", layer: 2, head: 4, line: 5 };
  assert.deepEqual(told(two, shown), names);
  assert.deepEqual(from(two, names), [shown, []]);
  const [last, wrong] = from(two, {
    pass: "99",
    layer: "0",
    head: "x",
    line: "77",
    cache: "maybe",
    mask: "off",
  });
  const { event, layer, head, row, cached, ahead } = last;
  assert.deepEqual(
    [event, layer, head, cached, ahead],
    [two.record.runs[0].events.length - 1, 0, null, true, false],
  );
  assert.equal(row, two.record.columns - 1);
  assert.deepEqual(wrong.sort(), ["cache", "head", "layer", "line", "mask", "pass"]);
  const lab = from(two, { panels: "lab", mask: "off", text: "recorded" });
  assert.deepEqual([lab[0].face, lab[0].ahead, lab[0].chosen.tokens, lab[1]], ["lab", true, null, []]);
  for (const [maker, panels] of [
    [two, "x"],
    [made("two", { machines: null }), "lab"],
  ])
    assert.deepEqual(from(maker, { panels })[1], ["panels"]);
  const notYet = from(two, { pass: "2", line: "6" });
  assert.deepEqual([notYet[0].row, notYet[1]], [3, ["line"]], "it has not run");
});

test("a picture shows prefill, a step and the step without the cache; the lab training, prefill and a step", () => {
  const shown = (name, face, event) =>
    looks.stillsOf(record(name), { face, event }).map(({ pass, cache }) => `${pass} ${cache}`);
  assert.deepEqual(shown("two", "story", 1), ["2 on", "3 on", "3 off"]);
  assert.deepEqual(shown("two", "lab", 1), ["1 on", "2 on", "3 on"]);
  assert.deepEqual(shown("two", "story", 0), ["1 on", "2 on", "3 on", "3 off"]);
  assert.deepEqual(shown("one", "story", 0), ["1 on"], "there is no step");
});

test("what can be switched: what there is more than one of, and heads that the layer has", () => {
  const switches = (maker, more = {}) => {
    const shown = { ...looks.shownAtFirst(maker, maker.face), ...more };
    return looks.switchesOf(maker.record, shown, shown.head);
  };
  const seen = (all) => all.map(({ label, names, chosen }) => [label, names.join(), chosen]);
  assert.deepEqual(seen(switches(made("toy"), { head: 3 })), [
    ["Head", "mean,even,newest,first,all", 4],
    ["KV cache", "on,off", 0],
  ]);
  const lab = switches(made("two", { face: "lab" }), { layer: 1, cached: false, ahead: true });
  assert.deepEqual(
    seen(lab).filter(([label]) => label !== "Head"),
    [
      ["Layer", "1,2", 1],
      ["KV cache", "on,off", 1],
      ["Left only", "on,off", 1],
    ],
  );
  const [layer, head, cache, mask] = lab.map(({ to }) => [to(0), to(1)]);
  assert.deepEqual(layer, [{ layer: 0 }, { layer: 1 }]);
  assert.deepEqual(head, [{ head: null }, { head: 0 }]);
  assert.deepEqual(cache, [{ cached: true }, { cached: false }]);
  assert.deepEqual(mask, [{ ahead: false }, { ahead: true }]);
  const heads = made("heads");
  for (const one of heads.record.layers) {
    const { names, allowed, to } = switches(heads, { layer: one }).find(({ label }) => label === "Head");
    const there = heads.record.recorded.filter(([of]) => of === one).map(([, head]) => head);
    for (const i of names.keys())
      assert.equal(allowed(i), i === 0 || there.includes(to(i).head), `${one} ${i}`);
  }
});

test("of many passes some, the first and the last among them", () => {
  assert.deepEqual(looks.sampled(6), [0, 1, 2, 3, 4, 5]);
  assert.deepEqual(looks.sampled(30), [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29]);
});
