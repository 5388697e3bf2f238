// What views have that go from step to step: buttons, a slider, keys, and Play.
import type { ComponentChild } from "preact";
import VIEW from "../view.json" with { type: "json" };
import { Button, Slider } from "./parts.tsx";
import { View } from "./view.tsx";

const SAY = VIEW.stepper;

/** A view that stands at one of several steps: a kind of it says at which (`at`, `last`) and goes there (`go`). */
export class Played extends View {
  playing: ReturnType<typeof setInterval> | null = null;
  every = 1200; // milliseconds

  get at() {
    return 0;
  }

  get last() {
    return 0;
  }

  go(_at: number) {}

  stepKeys(): Record<string, () => void> {
    return {
      ArrowLeft: () => this.go(this.at - 1),
      ArrowRight: () => this.go(this.at + 1),
      Home: () => this.go(0),
      End: () => this.go(this.last),
    };
  }

  togglePlay() {
    if (this.playing !== null) return this.stop();
    if (this.at === this.last) this.go(0);
    this.playing = setInterval(() => this.playOn(), this.every);
    super.draw();
  }

  playOn() {
    if (!this.root.isConnected) return this.stop();
    this.go(this.at + 1);
    if (this.at === this.last) this.stop();
  }

  stop() {
    clearInterval(this.playing ?? undefined);
    this.playing = null;
    super.draw();
  }

  /** Its buttons, which stay in sight on a phone; `said`: where the slider is; `held`: what stays with them. */
  buttons(label: string, said: string, held: ComponentChild = null) {
    const { at, last } = this;
    // Not `disabled`: a disabled button that has the focus swallows the keys.
    return (
      <div class="wid-steps">
        <div class="wid-buttons">
          <Button aria-disabled={at === 0} onClick={() => this.go(at - 1)}>
            {SAY.back}
          </Button>
          <Button class="wid-go" aria-disabled={at === last} onClick={() => this.go(at + 1)}>
            {SAY.next}
          </Button>
          <Button onClick={() => this.togglePlay()}>
            {VIEW.race[this.playing === null ? "play" : "pause"]}
          </Button>
          <Slider
            {...{ min: 0, max: last, value: at, "aria-label": label, "aria-valuetext": said }}
            onInput={(e) => this.go(Number(e.currentTarget.value))}
          />
        </div>
        {held}
      </div>
    );
  }
}
