"""A client of OpenAI-compatible servers: the form of a request, a limit, and errors that say what to do."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

from helpers.corpus import vocabulary

WORDS = [word for word in vocabulary() if word.isalpha()]
ADVICE = {
    401: "set the environment variable API_KEY to a key that it takes, and restart Jupyter",
    403: "this key may not use the model: choose another model, or another key",
    404: "it knows no such path or model: most addresses end with /v1, and the model is a name of its list",
    429: "it wants fewer requests: wait a minute, send fewer at once, and run this cell again",
}


class RefusedError(RuntimeError):
    """The server answers with another status than 200, the `status`."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        advice = ADVICE.get(self.status, "read what it says, or its log")
        said = " ".join(answer.read().decode(errors="replace")[:200].split())
        super().__init__(f"The server answers {self.status}: {advice}. {said}")


class Piece(NamedTuple):
    """A part of a reply: text, its tokens' logprobs, and the server's counts. Each may be empty."""

    text: str
    logprobs: list[float]
    usage: dict[str, Any]


class Client:
    """A client of one server.

    Each problem raises RuntimeError with a sentence that says what to do.

    Args:
        address: the base URL, such as "http://localhost:8080/v1".
        model: the model's name there; None for the first one that the server lists.
        key: the API key.
        limit: maximum number of requests.

    Attributes:
        tokens_per_word, tokens_around: the number of tokens of a word, and of what the server itself adds to
            a prompt, such as a chat template; set by `connect`.
        logprobs: whether to ask for the logprobs of the tokens.
    """

    def __init__(self, address: str, model: str | None = None, key: str = "none", limit: int = 300) -> None:
        self.address, self.model, self.limit, self.n_sent = address, model, limit, 0
        self.logprobs = False
        self.chat, self.ignore_eos, self.tokens_per_word, self.tokens_around = False, True, 1.0, 0.0
        remote = address.startswith("https")
        self.http = httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {key}"},
            timeout=300,
            # Without TLS, a new connection costs little, and a kept one may be closed when it is used.
            limits=httpx.Limits(max_keepalive_connections=None if remote else 0),
            trust_env=remote,  # no proxy on the way to this machine
        )

    def connect(self) -> None:
        """Find out in which form the server takes a request, and how many tokens a word has."""
        self.model = self.model or self.first_model()
        for self.chat in (False, True):
            for self.ignore_eos in (True, False):
                try:
                    few, many = (self.count_tokens(n) for n in (50, 150))
                    self.tokens_per_word = (many - few) / 100
                    self.tokens_around = few - 50 * self.tokens_per_word
                    return
                except RefusedError as refused:
                    if refused.status not in (400, 404, 405, 422) or (self.chat and not self.ignore_eos):
                        raise

    def first_model(self) -> str:
        """Return the name of the first model that the server lists."""
        try:
            answer = self.http.get("models")
            if answer.status_code != 200:
                raise RefusedError(answer)
            return str(answer.json()["data"][0]["id"])
        except httpx.TransportError as error:
            raise RuntimeError(self.in_words(error)) from None
        except (ValueError, LookupError, TypeError):
            problem = f"{self.address} gives no list of models: correct the address, or name the model."
            raise RuntimeError(problem) from None

    def count_tokens(self, n_words: int) -> int:
        """Return how many tokens the server counts in a prompt of random words."""
        pieces = self.stream(" ".join(random.choices(WORDS, k=n_words)), 1)
        return int([piece.usage["prompt_tokens"] for piece in pieces if piece.usage][-1])

    def text(self, n: int) -> str:
        """Return a prompt of about n tokens: random words, so that the server has not seen it before."""
        n_words = max(1, round((n - self.tokens_around) / self.tokens_per_word))
        return " ".join(random.choices(WORDS, k=n_words))

    def stream(self, prompt: str, n: int) -> Iterator[Piece]:
        """Send a prompt; yield the pieces of a reply of n tokens at temperature 0, each as it comes."""
        if self.n_sent == self.limit:
            raise RuntimeError(
                f"{self.limit} requests are sent: if the server may get more, raise the limit."
            )
        self.n_sent += 1
        body: dict[str, Any] = {"model": self.model, "max_tokens": n, "temperature": 0, "stream": True}
        body |= {"stream_options": {"include_usage": True}} | (
            {"ignore_eos": True} if self.ignore_eos else {}
        )
        body |= {"messages": [{"role": "user", "content": prompt}]} if self.chat else {"prompt": prompt}
        body |= {"logprobs": True if self.chat else 1} if self.logprobs else {}
        n_pieces, is_counted = 0, False
        try:
            path = "chat/completions" if self.chat else "completions"
            with self.http.stream("POST", path, json=body) as answer:
                if answer.status_code != 200:
                    raise RefusedError(answer)
                for line in answer.iter_lines():
                    if line.startswith("data: {"):
                        piece = piece_of(json.loads(line[6:]))
                        n_pieces, is_counted = n_pieces + 1, is_counted or bool(piece.usage)
                        yield piece
        except httpx.TransportError as error:
            raise RuntimeError(self.in_words(error, n_pieces)) from None
        if not n_pieces:
            raise RuntimeError(
                "No stream came back: expected lines `data: {…}`. Does the address end with /v1?"
            )
        if not is_counted:
            raise RuntimeError(
                "The stream has no `usage`, which counts the tokens: switch it on at the server."
            )

    def in_words(self, error: httpx.TransportError, n_pieces: int = 0) -> str:
        """Return a sentence that says what to do."""
        if isinstance(error, httpx.ConnectError | httpx.UnsupportedProtocol):
            return f"No server answers at {self.address}: start it, or correct the address."
        if isinstance(error, httpx.TimeoutException):
            return "Nothing came for five minutes: look at the server's log, or send shorter prompts."
        ended = f"The connection ended after {n_pieces} pieces"
        return f"{ended}: look at the server's log, and run this cell again."


def piece_of(event: dict[str, Any]) -> Piece:
    """Return what an event of a stream says, in the form of completions or of chats."""
    if "error" in event:
        raise RuntimeError(f"The server broke the reply off: {event['error']}")
    text, logprobs = "", list[float]()
    for choice in event.get("choices", []):
        said = choice.get("delta") or choice
        text += said.get("text") or said.get("content") or said.get("reasoning_content") or ""
        if given := choice.get("logprobs"):
            logprobs += given.get("token_logprobs") or [token["logprob"] for token in given["content"]]
    return Piece(text, logprobs, event.get("usage") or {})


def changed(prompt: str, at: int) -> str:
    """Return the prompt with another word at an index, drawn by chance: the server has not seen it before."""
    words = prompt.split()
    words[at] = random.choice([word for word in WORDS if word != words[at]])
    return " ".join(words)
