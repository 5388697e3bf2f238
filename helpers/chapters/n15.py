"""The figures and the predictions of notebook 15, fewer heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from helpers.check.guess import Guess, check_ratio_guess
from helpers.cost.layers import Full, Latent, layer_types_of
from helpers.cost.models import MODELS
from helpers.drawing.canvas import Picture, Sheet
from helpers.drawing.words import SMALL, join_words, printable, shorten
from helpers.plots.measured import set_log_scale

if TYPE_CHECKING:
    from helpers.model.config import ModelConfig

QUERY, KEY, VALUE, LATENT = (
    *[(f"{name} fill", name) for name in ("query", "key", "value")],
    ("panel", "ink"),
)  # fill and edge


class Matrix(NamedTuple):
    """A matrix to draw, with its name, its shape and its colour."""

    name: str
    n_rows: int
    n_columns: int
    colour: str


MAX_MATRIX_SIDE = 45.0  # px: side of the larger of a query and a latent
PX_PER_NUMBER = 0.5  # width in px of one number of a KV entry
# The line of each way to select entries: its colour and its dashes.
WAYS: list[tuple[str, Any]] = [
    ("soft", (0, (1.5, 1.5))), ("soft", (0, (6, 2, 1.5, 2))), ("query", (0, (5, 2.5))), ("query", "-"),
    ("ink", "-")
]  # fmt: skip
HEAD_WIDTH, HEAD_SPACING = 24, 34  # px: width of a query head, and distance from one head to the next


def check_operations_per_byte_guess(guess: Any) -> Guess:
    """Compare a guess of the arithmetic intensity of attention in a decode step of Llama-3.1-8B.

    The intensity is the number of operations per byte of the KV cache.
    """
    model = MODELS["Llama-3.1-8B"]
    return Guess(guess, model.n_heads // model.n_kv_heads, "An entry that is read serves four heads.")


def check_gib_read_guess(guess: Any, gib: float) -> Guess:
    """Compare a guess of what a decode step of DeepSeek-V3.2 reads of its cache after 131,072 tokens."""
    why = "All the indexer's keys, and 2,048 of the 131,072 entries."
    return check_ratio_guess(guess, (0.2, 2, 5, 10), gib, why)


def kv_entries_and_query_heads(configs: Mapping[str, ModelConfig]) -> Picture:
    """Draw one token's KV entry in a layer of several models, which are given by their configs.

    Lines connect each query head with the part of the KV entry that it reads.
    """
    layers = {name: cast("Full | Latent", layer_types_of(config)[0]) for name, config in configs.items()}
    n_heads = next(iter(configs.values())).n_heads

    def draw(sheet: Sheet) -> None:
        columns, wide = 2, (sheet.width - 16) / 2
        for n, (name, kind) in enumerate(layers.items()):
            _reads(sheet, 8 + wide * (n % columns), 18 + 226 * (n // columns), wide, name, kind, n_heads)

    output = []
    for name, kind in layers.items():
        parts = len(_parts(kind))
        serves = [join_words([str(h + 1) for h in _group(g, parts, n_heads)]) for g in range(parts)]
        what = "; ".join(f"KV head {g + 1} serves {heads}" for g, heads in enumerate(serves))
        if isinstance(kind, Latent):
            what = f"all {n_heads} heads read one latent c, and one K"
        output.append(f"{printable(name)}: {what}; an entry has {kind.entry_size} numbers")
    return Picture(draw, ". ".join(output) + ".")


def _parts(kind: Full | Latent) -> list[dict[str, tuple[int, tuple[str, str]]]]:
    """Return the parts of a KV entry, one part per group of query heads that read the same part.

    Each part is a dict that maps the name of a box, such as "K", to a pair: how many numbers the box
    contains, and its colours (fill, edge).
    """
    if isinstance(kind, Latent):
        return [{"c": (kind.rank, LATENT), "K": (kind.rope_dim, KEY)}]
    return [{"K": (kind.k_dim, KEY), "V": (kind.v_dim, VALUE)}] * kind.n_kv_heads


def _group(g: int, parts: int, n_heads: int) -> range:
    """Return the indices, from 0, of the query heads that read one part of a KV entry.

    Args:
        g: index of the part, from 0.
        parts: number of parts in the KV entry.
        n_heads: number of query heads in the layer.
    """
    return range(g * n_heads // parts, (g + 1) * n_heads // parts)


def _reads(
    sheet: Sheet, left: float, top: float, wide: float, name: str, kind: Full | Latent, n_heads: int
) -> None:
    """Draw one type of layer in a column of the sheet.

    The query heads are at the top and the KV entry is at the bottom, with lines between them.
    """
    middle, parts = left + wide / 2, _parts(kind)
    sheet.text(middle, top, name, at="center", bold=True)
    heads = [middle + HEAD_SPACING * (h - (n_heads - 1) / 2) for h in range(n_heads)]
    pitch = HEAD_SPACING * n_heads / len(parts)
    for g, part in enumerate(parts):
        x = middle + pitch * (g - (len(parts) - 1) / 2)
        for h in _group(g, len(parts), n_heads):
            sheet.line((heads[h], top + 60), (x, top + 134), colour="query")
        x -= PX_PER_NUMBER * sum(numbers for numbers, _ in part.values()) / 2
        for name_of, (numbers, (fill, edge)) in part.items():
            sheet.box(x, top + 134, PX_PER_NUMBER * numbers, 26, fill=fill, edge=edge, radius=2)
            sheet.note(x + PX_PER_NUMBER * numbers / 2, top + 147, name_of, at="center", colour="ink")
            x += PX_PER_NUMBER * numbers
    for h, head in enumerate(heads):
        sheet.chip(head, top + 46, str(h + 1), width=HEAD_WIDTH, fill="query fill", edge="query")
    size = f"{kind.rank} + {kind.rope_dim}" if isinstance(kind, Latent) else f"{kind.entry_size}"
    sheet.note(middle, top + 182, f"{size} numbers", at="center", colour="ink")


def expanded_and_absorbed_products(S: int, D: int, rank: int) -> Picture:
    """Draw the two orders in which a query's scores, a product of three matrices, can be computed.

    For each order, the number of multiplications is given.

    Args:
        S: number of latents in the cache, one per token.
        D: number of channels in one head's query.
        rank: number of channels in a latent.
    """
    query, latents = Matrix("query", 1, D, "query"), Matrix("latents", rank, S, "panel")
    matrix = Matrix("M", D, rank, "panel")
    keys, wide = Matrix("keys", D, S, "key"), Matrix("query · M", 1, rank, "query")
    orders: dict[str, tuple[list[Matrix], list[Matrix]]] = {
        "expanded: M and the latents first": ([matrix, latents], [query, keys]),
        "absorbed: the query and M first": ([query, matrix], [wide, latents]),
    }

    def draw(sheet: Sheet) -> None:
        y = 18.0
        for name, (first, then) in orders.items():
            sheet.text(8, y, name, bold=True)
            for shapes, marked in (([query, matrix, latents], first), (then, [])):
                _shapes(sheet, y + 34, MAX_MATRIX_SIDE / max(D, rank), shapes, marked)
                y += MAX_MATRIX_SIDE + 76
            sheet.note(8, y, f"{_count(first) + _count(then):,} multiplications", colour="ink", bold=True)
            y += 48

    output = [
        f"{name}: {_times(first)}, then {_times(then)}: {_count(first) + _count(then):,} multiplications"
        for name, (first, then) in orders.items()
    ]
    return Picture(draw, f"The scores of one query with {S:,} latents. {'. '.join(output)}.")


def two_part_score(query_dim: int, rank: int, rope_dim: int) -> Picture:
    """Draw how a query is compared with a token's entry in latent attention: in two parts, which are added.

    Args:
        query_dim: number of channels of a head's query that are not rotated.
        rank: number of channels in a latent.
        rope_dim: number of channels that are rotated.
    """

    def draw(sheet: Sheet) -> None:
        scale, left, right = 3.2, 176.0, 360.0  # px per number; px: the middle of each part

        def row(y: float, title: str, *boxes: tuple[float, str, int, tuple[str, str]]) -> None:
            sheet.text(8, y + 13, title, bold=True)
            for middle, name, numbers, (fill, edge) in boxes:
                x = middle - scale * numbers / 2
                sheet.box(x, y, scale * numbers, 26, fill=fill, edge=edge, radius=2)
                sheet.note(middle, y + 13, name, at="center", colour="ink")
                sheet.note(x + scale * numbers + 6, y + 13, f"{numbers}")

        row(10, "a query", (left, "content", query_dim, QUERY), (right, "position", rope_dim, QUERY))
        sheet.arrow(left, 38, left, 66, "query")
        sheet.note(left + 10, 50, "· M, once a step")
        row(68, "", (left, "query · M", rank, QUERY))
        sheet.arrow(left, 96, left, 132, "query")
        sheet.note(left + 10, 112, "product")
        sheet.arrow(right, 38, right, 132, "query")
        sheet.note(right + 10, 112, "product")
        row(134, "an entry", (left, "c", rank, LATENT), (right, "K, rotated", rope_dim, KEY))
        sheet.text(8, 186, "its score", bold=True)
        sheet.text(left, 186, "what it is", at="center")
        sheet.text((left + right) / 2, 186, "+", at="center", bold=True)
        sheet.text(right, 186, "how far away it is", at="center")

    output = (
        f"A query has {query_dim} numbers for content and {rope_dim} for position. The first part, times M, "
        f"is {rank} numbers. Their product with a token's latent c says what the token is. The product of "
        f"the second part with its rotated K, {rope_dim} numbers, says how far away it is. "
        "The score is their sum."
    )
    return Picture(draw, output)


def losses_and_signatures(
    counts: Sequence[int], found: Mapping[str, Sequence[tuple[int, float]]], n_texts: int, everything: float
) -> Picture:
    """Draw the loss of each way to select entries; below it, a row of each way has its correct signatures.

    Args:
        counts: numbers of entries that a token attends to, in ascending order.
        found: maps the name of each way, up to 5, to (number of correctly signed texts, loss) for each count.
        n_texts: number of texts that the model signs.
        everything: the loss if each token attends to all entries.
    """
    losses = [loss for pairs in found.values() for _, loss in pairs]

    def draw(sheet: Sheet) -> None:
        left, right, base = 200.0, sheet.width - 30.0, 250.0
        sheet.heading("loss, by entries that a token attends to")
        axes = sheet.add_axes(left, 46, right, base, "")
        set_log_scale(axes.xaxis, base=2)
        axes.set(xlim=(counts[0] / 1.3, counts[-1] * 1.3), ylim=(min(losses) / 1.15, max(losses) * 1.1))
        axes.set_yscale("log")
        axes.set_yticks([0.7, 1, 2, 4], ["0.7", "1", "2", "4"], minor=False)
        axes.set_yticks([], minor=True)
        sheet.note(18, base + 44, f"signed right, of {n_texts}:")
        for k, ((name, pairs), (colour, dashes)) in enumerate(zip(found.items(), WAYS, strict=False)):
            y = base + 68 + 24 * k
            points = [sheet.data_to_sheet(axes, n, loss) for n, (_, loss) in zip(counts, pairs, strict=True)]
            sheet.line(*points, colour=colour, width=2, dashes=dashes)
            sheet.line((18, y), (42, y), colour=colour, width=2, dashes=dashes)
            sheet.note(50, y, shorten(name, left - 66, SMALL), colour="ink")
            for (x, height), (signed, _) in zip(points, pairs, strict=True):
                sheet.disc(x, height, 4, colour, colour)
                sheet.note(x, y, str(signed), at="center", colour="ink", bold=signed == n_texts)

    sentence = ". ".join(
        f"{printable(name)}: "
        + ", ".join(
            f"{signed} signed and loss {loss:.2f} with {n}"
            for n, (signed, loss) in zip(counts, pairs, strict=True)
        )
        for name, pairs in found.items()
    )
    output = f"The loss if a token attends to few entries; it is {everything:.2f} with all of them"
    return Picture(draw, f"{output}. Signed right, of {n_texts}, and loss. {sentence}.")


def _shapes(sheet: Sheet, y: float, unit: float, shapes: list[Matrix], marked: list[Matrix]) -> None:
    """Draw matrices side by side, with their names above them and their shapes below them.

    A line below the shapes marks the matrices that are multiplied first.

    Args:
        sheet: the sheet to draw on.
        y: y position of the top of the matrices, in px.
        unit: width and height of one number, in px.
        shapes: the matrices.
        marked: the neighbouring matrices that are multiplied first. If it is empty, there is no line.
    """
    x, ends = 8.0, []
    for shape in shapes:
        name, high, wide, kind = shape
        across, down = min(unit * wide, sheet.width - 16 - x), max(6.0, unit * high)
        fill, edge = ("panel", "ink") if kind == "panel" else (f"{kind} fill", kind)
        sheet.box(x, y + (MAX_MATRIX_SIDE - down) / 2, across, down, fill=fill, edge=edge, radius=2)
        sheet.note(x, y - 12, name, colour="ink")
        sheet.note(x, y + MAX_MATRIX_SIDE + 14, f"{high:,} × {wide:,}")
        ends += [x, x + across] if shape in marked else []
        x += max(across, 74) + 10
    if ends:
        sheet.line((ends[0], y + MAX_MATRIX_SIDE + 27), (ends[-1], y + MAX_MATRIX_SIDE + 27), width=3)


def _count(product: list[Matrix]) -> int:
    (_, high, through, _), (_, _, wide, _) = product
    return high * through * wide


def _times(product: list[Matrix]) -> str:
    return " times ".join(f"{name} ({high:,} by {wide:,})" for name, high, wide, _ in product)
