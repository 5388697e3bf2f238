"""Notebook 25 finds the settings of servers, on a simulated clock and over loopback."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import httpx
import nbformat
import numpy as np
import pytest

from helpers.model import shipped
from helpers.model.generate import generate
from helpers.serve.client import Client
from helpers.serve.endpoint import Endpoint, Settings, drawn_settings, word_ids
from helpers.serve.sequence import Request
from helpers.serve.simulation import simulate
from tests.machine import ROOT

PAGE = nbformat.read(ROOT / "notebooks/25_your_own_server.ipynb", as_version=4).cells
CELLS = [(c.id, c.source) for c in PAGE if c.cell_type == "code" and "source_hidden" not in str(c.metadata)]


def run_page(replaced: dict[str, Any], address: str | None = None, last: str = "") -> dict[str, Any]:
    """Run the page's cells, to the one with the id `last`, with an address if one is given; return its names.

    `replaced` are names that have these values after each cell, whatever it defines.
    """
    names: dict[str, Any] = {"__name__": "page"}
    for id, source in CELLS:
        source = source.replace("ADDRESS, MODEL = None", f"ADDRESS, MODEL = {address!r}")
        exec(compile(source, id, "exec"), names)
        names |= replaced
        if id == last:
            break
    return names


class SimulatedServer:
    """The server on paper on a simulated clock: steps last longer, and pieces come later, by chance."""

    def __init__(self, settings: Settings, noise: float, seed: int, tells: bool, front: float) -> None:
        self.settings, self.noise, self.tells, self.front = settings, noise, tells, front
        self.scheduler, self.rng, self.n_asked, self.n_tokens = (
            settings.scheduler(),
            random.Random(seed),
            0,
            0,
        )

    def ask(self, prompt: str, n: int = 1) -> Any:
        return self.together([(prompt, n)])[0]

    def together(self, jobs: list[tuple[str, int]]) -> list[Any]:
        return self.at([(0.0, *job) for job in jobs])

    def ask_during(self, n: int) -> list[Any]:
        times = self.at([(0.0, "a b", 64)])[0].came
        self.n_asked -= 1  # to know when, which the page sees
        return self.at([(0.0, Client("").text(16), 64), (times[7] / 1000, Client("").text(n), 1)])

    def at(self, jobs: list[tuple[float, str, int]]) -> list[Any]:
        prompts = [word_ids(prompt) for _, prompt, _ in jobs]
        arrivals = [(sent + self.front, Request(k, prompts[k], n)) for k, (sent, _, n) in enumerate(jobs)]
        cached: dict[Any, int] = {}

        def seconds(plan: Any) -> float:
            cached.update({sequence.request.id: sequence.num_cached_tokens for sequence, _ in plan})
            return self.settings.seconds(plan) * (1 + 0.1 * self.noise * self.rng.expovariate(1))

        times = simulate(self.scheduler, arrivals, seconds)
        self.n_asked, self.n_tokens = self.n_asked + len(jobs), self.n_tokens + sum(map(len, prompts))
        return [self.reply(k, times[k], len(prompts[k]), cached[k]) for k in range(len(jobs))]

    def reply(self, k: int, times: Any, n_prompt: int, cached: int) -> Any:
        sent = times.arrived - self.front
        late = [1000 * (t - sent) + self.noise * self.rng.expovariate(1) for t in times.token_times]
        usage: dict[str, Any] = {"prompt_tokens": n_prompt, "completion_tokens": len(late)}
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}} if self.tells else {}
        came = np.maximum.accumulate(late).tolist()
        return SimpleNamespace(sent=1000 * sent, came=came, text="", usage=usage, logprobs=[])


def card_of(
    settings: Settings, noise: float = 0.5, seed: int = 0, tells: bool = True, front: float = 0.0
) -> dict[str, Any]:
    """Return the report card of a simulated server, with something in front that takes `front` seconds."""
    server = SimulatedServer(settings, noise, seed, tells, front)
    endpoint = SimpleNamespace(address="http://127.0.0.1:9", settings=settings, stop=lambda: None)
    client = type("Unconnected", (Client,), {"connect": lambda self: None})
    replaced = {"ask": server.ask, "together": server.together, "ask_during": server.ask_during}
    random.seed(seed)  # the page draws its prompts from here
    names = run_page(replaced | {"Client": client, "Endpoint": lambda: endpoint})
    said = 26 * names["MOST"] + 20_000
    assert 0.6 * said < server.n_tokens <= said, "the cell that asks for the address says another number"
    assert server.n_asked <= 220
    return names["found"]


@pytest.mark.parametrize("seed", range(5))
def test_the_card_is_right_or_cannot_tell(seed: int) -> None:
    settings = drawn_settings(random.Random(seed))
    card = card_of(settings, seed=seed)
    assert card["slots"] == str(settings.slots)
    assert card["prefix cache"] == ("on" if settings.prefix_caching else "off")
    assert card["block"] == (str(settings.page_size) if settings.prefix_caching else None)
    if budget := card["token budget"]:
        low, _, high, _ = budget.split()
        assert 0.9 * int(low) <= settings.token_budget <= 1.1 * int(high)
    assert abs(float(card["bandwidth reached"].rstrip("%")) / 100 - settings.reached) < 0.06


def test_what_is_in_front_of_a_server_does_not_mislead() -> None:
    card = card_of(Settings(token_budget=64), noise=0, front=0.05)
    low, _, high, _ = card["token budget"].split()
    assert int(low) <= 64 <= int(high)
    assert card_of(Settings(), noise=0.3, front=0.3)["token budget"] is None
    assert card_of(Settings(), noise=0.3, front=0.5, tells=False)["prefix cache"] == "on"


@pytest.mark.parametrize("page_size", [8, 16, 32])
def test_the_clock_alone_finds_the_block_where_nothing_disturbs_it(page_size: int) -> None:
    assert card_of(Settings(page_size=page_size), noise=0, tells=False)["block"] == str(page_size)
    assert card_of(Settings(page_size=page_size), noise=8, tells=False)["block"] is None


def test_a_server_without_chunks_or_without_slots_to_spare() -> None:
    assert card_of(Settings(token_budget=4096), noise=0)["token budget"] == "over 937 tokens"
    assert card_of(Settings(slots=1), noise=0)["token budget"] is None
    assert card_of(Settings(slots=32), noise=0)["slots"] == "16 or more"


def test_a_model_answers_at_the_endpoint_as_it_does_here() -> None:
    endpoint = Endpoint(Settings(), model="shipped")
    try:
        names = run_page({}, endpoint.address, last="c25-text")
        reply = names["ask"]("Mia writes from Oslo .", 8)
    finally:
        endpoint.stop()
    model, tokenizer = shipped.load_shipped()
    tokens = [*generate(model, tokenizer.encode("Mia writes from Oslo ."), max_new_tokens=8)]
    assert reply.text.split() == tokenizer.words(tokens)
    assert reply.usage["prompt_tokens"] == 5


EVENT = 'data: {"choices": [{"text": "x", "finish_reason": "length"}]}\n\n'
LISTED = json.dumps({"data": [{"id": "m"}]})


def answering(status: int, text: str, length: int | None = None) -> Callable[[Any], None]:
    """Return a handler that sends this status and text, and names another length, or the right one."""

    def answer(handler: Any) -> None:
        body = LISTED if handler.path.endswith("models") and status != 401 else text
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        handler.send_response(200 if body is LISTED else status)
        handler.send_header("Content-Length", str((body is not LISTED and length) or len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answer


@pytest.fixture
def address_of() -> Iterator[Callable[[Callable[[Any], None]], str]]:
    """A function that starts a server with a handler, and returns its address."""
    servers = []

    def start(answer: Callable[[Any], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_address[1]}/v1"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "No server answers at http://127.0.0.1:9/v1: start it, or correct the address."),
        ("localhost:8080/v1", "No server answers at localhost:8080/v1"),
        (answering(401, "{}"), "The server answers 401: set the environment variable API_KEY"),
        (answering(404, "{}"), "The server answers 404: it knows no such path or model"),
        (answering(429, "slow down"), "The server answers 429: it wants fewer requests: .*slow down"),
        (answering(200, "<html>"), "No stream came back"),
        (answering(200, EVENT), "The stream has no `usage`"),
        (answering(200, EVENT, length=9999), "The connection ended after 1 pieces"),
        (answering(200, 'data: {"error": "no memory"}\n\n'), "The server broke the reply off: no memory"),
    ],
)
def test_a_wrong_address_gets_one_sentence(
    answer: Any, sentence: str, address_of: Callable[[Any], str]
) -> None:
    address = address_of(answer) if callable(answer) else answer or "http://127.0.0.1:9/v1"
    with pytest.raises(RuntimeError, match=sentence) as raised:
        Client(address).connect()
    assert "\n" not in str(raised.value)


def test_no_more_requests_are_sent_than_the_limit() -> None:
    with pytest.raises(RuntimeError, match="0 requests are sent"):
        [*Client("http://127.0.0.1:9/v1", limit=0).stream("x", 1)]


def test_an_endpoint_refuses_what_it_cannot_serve() -> None:
    endpoint = Endpoint(Settings())
    body = {"prompt": "", "stream": True}
    try:
        with httpx.Client(base_url=endpoint.address, trust_env=False) as client:
            answers = [client.post("completions", json=body), client.post("embeddings", json=body)]
    finally:
        endpoint.stop()
    assert [answer.status_code for answer in answers] == [400, 404]
    assert "expected at least one token" in answers[0].text
