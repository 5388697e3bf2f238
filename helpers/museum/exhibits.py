"""The exhibits: each a function that serves a text, as it was shipped or as it was repaired."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.model.cache import GrowingCache, KVCache, PagedCache, StateCache, StaticCache, WindowCache
from helpers.model.cache.paged import PagePool
from helpers.model.generate import run
from helpers.museum.desk import Ask, Desk
from helpers.museum.exhibit import LEFTOVER, Rounded, exhibit, model_of

CHUNK, WIDTH, PAGE, ROOM = 16, 64, 8, 512  # tokens of a chunk, of a padded prompt, of a page, of a buffer


def plant(cache: KVCache, **methods: Callable[..., Any]) -> None:
    """Put other methods into one cache."""
    vars(cache).update(methods)


def turned_at(cache: KVCache, where: Callable[[int], Tensor]) -> None:
    """Let keys and queries be turned by other positions; what the cache keeps and shows stays right."""
    right = cache.positions

    def truly(call: Callable[..., Any], *given: Any) -> Any:
        plant(cache, positions=right)
        answer = call(*given)
        plant(cache, positions=where)
        return answer

    plant(cache, positions=where, mask=partial(truly, cache.mask), advance=partial(truly, cache.advance))


def prefilled(desk: Desk, text: str, cache: KVCache) -> None:
    """Run a text that nobody watches."""
    run(desk.model, torch.tensor([desk.ids(text)]), cache)


@exhibit("capacity")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = StaticCache(desk.model.config, max_len=ROOM)
    append, mask = cache.append, cache.mask
    if shipped:
        plant(
            cache,
            append=lambda layer, *new: (append(layer, *new), (cache.k[layer], cache.v[layer]))[1],
            mask=lambda T, layer=0: F.pad(mask(T), (0, ROOM - cache.length - T), value=True),
        )
    desk.reply(desk.ids(ask.text), cache)


@exhibit("reset")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = StaticCache(desk.model.config)
    if ask.before:
        prefilled(desk, ask.before, cache)
        cache.k.zero_()
        cache.v.zero_()
        if not shipped:
            cache.reset()
    desk.reply(desk.ids(ask.text), cache)


@exhibit("corner")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = GrowingCache(desk.model.config)
    mask = cache.mask
    if shipped:
        square = torch.ones(ROOM, ROOM, dtype=torch.bool).tril()
        plant(cache, mask=lambda T, layer=0: square[:T, : cache.length + T] if T > 1 else mask(T))
    if repair := desk.repair:
        plant(cache, mask=lambda T, layer=0: repair(T, cache.length, 0))
    desk.reply(desk.ids(ask.text), cache, CHUNK)


@exhibit("padding")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache, ids = GrowingCache(desk.model.config), desk.ids(ask.text)
    pads, mask = max(0, WIDTH - len(ids)), cache.mask

    def hidden(T: int, layer: int = 0) -> Tensor:
        seen = mask(T)
        return seen if T == 1 and shipped else seen & (torch.arange(seen.shape[1]) >= pads)

    plant(cache, mask=hidden)
    if repair := desk.repair:
        plant(cache, mask=lambda T, layer=0: repair(T, cache.length, pads))
    desk.reply([*desk.model.config.eos_ids] * pads + ids, cache)


def in_window(desk: Desk, ask: Ask, cache: WindowCache, wrong: Callable[[], int] | None) -> None:
    """Serve with a window, the next position told by `wrong` or by the reader."""
    repair = desk.repair
    message = (lambda: repair([at.tolist() for at in cache.at])) if repair else wrong
    if message:
        turned_at(cache, lambda T: message() + torch.arange(T))
    desk.reply(desk.ids(ask.text), cache)


@exhibit("shift")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = WindowCache(desk.model.config, 20, 4, dtype=desk.model.embed_tokens.weight.dtype)
    in_window(desk, ask, cache, (lambda: cache.n_kept) if shipped else None)


@exhibit("slides")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = WindowCache(desk.model.config, [28, None, None, None])
    in_window(desk, ask, cache, (lambda: cache.rows_of(0)) if shipped else None)


@exhibit("persona", model="adapter")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    ids, cache = desk.ids(ask.text), StaticCache(desk.model.config)
    pairs = zip(ids[:-1], desk.ids(ask.before), strict=False)
    found = [*(a == b for a, b in pairs), False].index(False)
    if found:
        run(model_of("diary")[0] if shipped else desk.model, torch.tensor([ids[:found]]), cache)
    desk.reply(ids, cache, ran=found)


@exhibit("freed")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    config, ids = desk.model.config, desk.ids(ask.text)
    pool, found = PagePool(config, 12, PAGE), (len(ids) - 1) // PAGE * PAGE
    cache = PagedCache(config, pool=pool, tables=[[*range(8)]])
    run(desk.model, torch.tensor([ids[:found]]), cache)  # somebody asked the same before, and left

    def another(output: int) -> None:
        if ask.before and output == 3:  # now the other one comes and is given pages
            tables = [[0, 8, 9] if shipped else [8, 9, 10]]
            prefilled(desk, ask.before, PagedCache(config, pool=pool, tables=tables))

    desk.between = another
    desk.reply(ids, cache, ran=found)


@exhibit("chunk", model="hybrid")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = StateCache(desk.model.config)
    positions, state = cache.positions, cache.state
    ran: list[int] = []  # tokens of each pass

    def stand(T: int) -> Tensor:
        ran.append(T)
        return positions(T)

    plant(
        cache,
        positions=stand,
        state=lambda layer: cache.zeros() if shipped and ran[-1] > 1 else state(layer),
    )
    desk.reply(desk.ids(ask.text), cache, CHUNK)


@exhibit("rewind", model="hybrid")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = StateCache(desk.model.config)

    def draft(output: int) -> None:
        before = cache.snapshot()
        if output == 1 and ask.before:
            prefilled(desk, ask.before, cache)  # and it is refused
        if shipped:
            cache.length = before.length
        else:
            cache.restore(before)

    desk.between = draft
    desk.reply(desk.ids(ask.text), cache)


@exhibit("uncached", model="sharing")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    cache = GrowingCache(desk.model.config)
    append = cache.append

    def shared(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        rows = append(layer, k, v)
        return (cache.k[layer - 1], cache.v[layer - 1]) if layer == LEFTOVER else rows

    plant(cache, append=shared)
    desk.reply(desk.ids(ask.text), (lambda: GrowingCache(desk.model.config)) if shipped else cache)


@exhibit("rounding", model="bfloat16")
def _(desk: Desk, ask: Ask, shipped: bool) -> None:
    for part in desk.model.modules():
        if isinstance(part, Rounded):
            part.pieces = 2 if shipped else 1
    desk.reply(desk.ids(ask.text), desk.model.new_cache())
