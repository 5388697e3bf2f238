"""An OpenAI-compatible endpoint on this machine, whose settings are known: an object to measure from outside.

    python -m helpers.serve.endpoint --slots 4 --token-budget 128 --page-size 16
    python -m helpers.serve.endpoint --model shipped --port 8125

By default no model runs. A server on paper has the scheduler and the pages of a real one, and sleeps in each
step for as long as notebook 12's equation says. Its replies are words without a meaning.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import queue
import random
import re
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from helpers.corpus import vocabulary
from helpers.cost.models import MODELS
from helpers.cost.roofline import Roofline
from helpers.cost.step import step_time
from helpers.serve.pages import PageManager
from helpers.serve.scheduler import Plan, Scheduler
from helpers.serve.sequence import Request

WORDS = vocabulary()[1:]  # without <eos>
SMALL_MODEL = MODELS["SmolLM2-135M"]
LAPTOP = Roofline(flops_per_second=500e9, bytes_per_second=40e9)
N_PAGES = 4096


@dataclass(frozen=True)
class Settings:
    """What a client can find out about the server on paper.

    Attributes:
        slots, token_budget: as in `Scheduler`.
        page_size, prefix_caching: as in `PageManager`.
        reached: fraction of the laptop's bandwidth and compute that a step reaches.
    """

    slots: int = 4
    token_budget: int = 128
    page_size: int = 16
    prefix_caching: bool = True
    reached: float = 1.0

    def scheduler(self) -> Scheduler:
        """Return a scheduler with these settings."""
        pages = PageManager(N_PAGES, self.page_size, prefix_caching=self.prefix_caching)
        return Scheduler(pages, self.slots, self.token_budget)

    def seconds(self, plan: Plan) -> float:
        """Return how long a step of the small model takes on the laptop."""
        requests = [(sequence.num_computed_tokens, n) for sequence, n in plan]
        share = self.reached
        step = step_time(SMALL_MODEL, LAPTOP, requests, bandwidth_reached=share, compute_reached=share)
        return step.total


def drawn_settings(rng: random.Random) -> Settings:
    """Return settings drawn by chance."""
    return Settings(
        rng.choice([2, 3, 4, 5, 6, 8]),
        rng.choice([48, 64, 96, 128]),
        rng.choice([8, 16, 32]),
        rng.random() < 7 / 8,
        rng.choice([0.6, 0.7, 0.8, 0.9]),
    )


class PaperEngine:
    """An engine on paper: a scheduler's steps last as long as the equation says, and a reply is any words."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.scheduler, self.until = settings, settings.scheduler(), 0.0
        self.sequences: dict[int, Any] = {}

    def add(self, id: int, prompt: Sequence[int], max_new_tokens: int) -> None:
        self.sequences[id] = self.scheduler.add(Request(id, prompt, max_new_tokens))

    def cancel(self, id: int) -> None:
        self.scheduler.cancel(id)

    @property
    def has_unfinished_requests(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running)

    def step(self) -> dict[int, int]:
        plan = self.scheduler.schedule()
        # The step begins where the last one ended, so that the time that Python takes is a part of it.
        self.until = max(time.perf_counter() - 0.002, self.until) + self.settings.seconds(plan)
        time.sleep(max(0.0, self.until - time.perf_counter()))
        caught_up = [sequence for sequence, n in plan if n == sequence.num_uncomputed_tokens]
        tokens = {s: zlib.crc32(repr(s.tokens[-8:]).encode()) % len(WORDS) for s in caught_up}
        self.scheduler.postprocess(plan, tokens)
        return {int(sequence.request.id): token for sequence, token in tokens.items()}  # type: ignore[call-overload]


def word_ids(text: str) -> list[int]:
    """Return a number for each word: its place in WORDS, or a larger number for any other word."""
    known = {word: n for n, word in enumerate(WORDS)}
    return [known.get(word, len(WORDS) + zlib.crc32(word.encode())) for word in text.split()]


class Service(threading.Thread):
    """Runs an engine's steps while it has requests. Requests and tokens go through queues."""

    def __init__(
        self, engine: Any, name: str, encode: Callable[[str], list[int]], decode: Callable[[list[int]], str]
    ) -> None:
        super().__init__(daemon=True)
        self.engine, self.model_name, self.encode, self.decode = engine, name, encode, decode
        self.ids, self.inbox = itertools.count(), queue.SimpleQueue[Any]()
        self.start()

    def ask(self, prompt: list[int], n: int) -> tuple[int, queue.SimpleQueue[Any]]:
        """Hand a request in; return its id, and a queue of (token, cached tokens, is last) or of an error."""
        id, out = next(self.ids), queue.SimpleQueue[Any]()
        self.inbox.put((id, prompt, n, out))
        return id, out

    def run(self) -> None:
        engine, outs = self.engine, dict[int, Any]()
        while True:
            while not self.inbox.empty() or not engine.has_unfinished_requests:
                id, prompt, n, out = self.inbox.get()
                try:
                    if prompt is None:  # the client has left
                        engine.cancel(id)
                    else:
                        engine.add(id, prompt, n)
                        outs[id] = out
                except ValueError as error:
                    if out:
                        out.put(error)
            for id, token in engine.step().items():
                sequence = engine.sequences[id]
                is_last = sequence.slot is None
                outs[id].put((token, sequence.num_cached_tokens, is_last))
                if is_last:
                    del outs[id], engine.sequences[id]


class Web(ThreadingHTTPServer):
    request_queue_size, daemon_threads = 128, True  # with the default of 5, some of 16 at once are refused

    def __init__(self, port: int, service: Service) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.service = service


class Handler(BaseHTTPRequestHandler):
    server: Web
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise small pieces wait up to 40 ms for each other

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, content: Any, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        models = {"data": [{"id": self.server.service.model_name, "object": "model"}]}
        self.answer(models) if self.path == "/v1/models" else self.answer({}, 404)

    def do_POST(self) -> None:
        service = self.server.service
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            return self.answer({"error": {"message": f"no such path: {self.path}"}}, 404)
        chat = "chat" in self.path
        text = "\n".join(message["content"] for message in body["messages"]) if chat else body["prompt"]
        try:
            prompt = service.encode(text)
            id, out = service.ask(prompt, body.get("max_tokens", 16))
            if isinstance(first := out.get(), ValueError):
                raise first
        except ValueError as error:
            return self.answer({"error": {"message": str(error)}}, 400)
        if not body.get("stream"):
            return self.answer({"error": {"message": "expected stream: true"}}, 400)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            for event in self.events(itertools.chain([first], iter(out.get, None)), chat, len(prompt)):
                self.wfile.write(f"data: {event}\n\n".encode())
        except OSError:
            service.inbox.put((id, None, 0, None))

    def events(self, tokens: Iterator[Any], chat: bool, n_prompt: int) -> Iterator[str]:
        """Yield the events of a reply: a piece of text for each token, then the usage, then [DONE]."""
        ids, before = list[int](), ""
        for token, cached, is_last in tokens:  # noqa: B007
            ids.append(token)
            text = self.server.service.decode(ids)
            piece, before = text[len(before) :], text
            said = {"delta": {"content": piece}} if chat else {"text": piece}
            choice = {"index": 0, "finish_reason": "length" if is_last else None, **said}
            yield json.dumps({"model": self.server.service.model_name, "choices": [choice]})
            if is_last:
                break
        usage: dict[str, Any] = {"prompt_tokens": n_prompt, "completion_tokens": len(ids)}
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}}
        yield json.dumps({"choices": [], "usage": usage})
        yield "[DONE]"


class Endpoint:
    """An endpoint in a process of its own, on a free port of this machine.

    It ends with `stop`, or when the process that started it ends.

    Attributes:
        address: what a client of OpenAI's takes as its base URL.
        settings: the settings that were drawn by chance, or given.
    """

    def __init__(self, settings: Settings | None = None, model: str = "") -> None:
        self.settings = settings or drawn_settings(random.Random())
        command = [sys.executable, "-m", "helpers.serve.endpoint", "--until-stdin-ends", f"--model={model}"]
        for name, value in vars(self.settings).items():
            command += [f"--{name.replace('_', '-')}={value}"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout is not None
        if not (found := re.match("listening at (.+)", self.process.stdout.readline())):
            raise RuntimeError("the endpoint did not start; expected a line with its address")
        self.address = found[1]

    def stop(self) -> None:
        """End the process."""
        self.process.communicate()


def service_of(settings: Settings, model: str) -> Service:
    """Return a service of the server on paper, or of a model: "shipped", or a path as in `load`."""
    if not model:
        decode = lambda ids: "".join(f" {WORDS[token]}" for token in ids)  # noqa: E731
        return Service(PaperEngine(settings), "on-paper", word_ids, decode)
    import torch  # the server on paper starts in a moment, without it

    from helpers.model import shipped
    from helpers.model.load import load, load_tokenizer
    from helpers.serve.engine import Engine

    torch.set_num_threads(1)
    loaded, tokenizer = shipped.load_shipped() if model == "shipped" else (load(model), load_tokenizer(model))
    engine = Engine(
        loaded, settings.slots, settings.token_budget, n_pages=N_PAGES * 16 // settings.page_size,
        page_size=settings.page_size, prefix_caching=settings.prefix_caching, eos_ids=(),
    )  # fmt: skip
    return Service(engine, model, tokenizer.encode, tokenizer.decode)


def until_stdin_ends(web: Web) -> None:
    """Stop the server when the process that started it closes the pipe, or ends."""
    sys.stdin.read()
    web.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 for any free port")
    parser.add_argument("--model", default="", help="shipped, or a checkpoint; without it, no model runs")
    parser.add_argument("--until-stdin-ends", action="store_true")
    for name, value in vars(Settings()).items():
        kind = (lambda text: text == "True") if isinstance(value, bool) else type(value)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=value)
    given = vars(parser.parse_args())
    settings = Settings(**{name: given[name] for name in vars(Settings())})
    web = Web(given["port"], service_of(settings, given["model"]))
    print(f"listening at http://127.0.0.1:{web.server_address[1]}/v1", flush=True)
    if given["until_stdin_ends"]:
        threading.Thread(target=until_stdin_ends, args=[web], daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        web.serve_forever()


if __name__ == "__main__":
    main()
