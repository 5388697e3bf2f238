// Asks the Worker, and waits for its answers.
import type { Ask, Answer } from "./protocol";
import type { startLive } from "./start.ts";

/** An ask without its id, which is given here. */
type Question = Ask extends infer One ? (One extends { id: number } ? Omit<One, "id"> : never) : never;

export class Talk {
  declare worker: ReturnType<typeof startLive>;
  declare last: number;
  declare asked: Map<number, { each: (answer: any) => void; done: (answer: any) => void }>;

  constructor(start: typeof startLive, died?: (say: string) => void) {
    this.worker = start((answer) => this.hear(answer), died);
    this.last = 0;
    this.asked = new Map();
  }

  /**
   * The last answer to a question; `each` gets those before it. What could not be done is answered by `failed`.
   */
  ask(question: Question, each = (_: any) => {}): Promise<any> {
    const id = ++this.last;
    return new Promise((done) => {
      this.asked.set(id, { each, done });
      this.worker.ask({ ...question, id } as Ask);
    });
  }

  hear(answer: Answer) {
    const waiting = this.asked.get(answer.id);
    if (answer.op === "pass" || answer.op === "progress") return waiting?.each(answer);
    this.asked.delete(answer.id);
    waiting?.done(answer);
  }

  stop() {
    this.worker.ask({ do: "stop" });
  }

  end() {
    this.worker.end();
  }
}
