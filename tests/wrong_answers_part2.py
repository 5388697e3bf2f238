"""Wrong answers to the exercises of Part II, as in `wrong_answers`."""

from __future__ import annotations

from tests.wrong_answers import Answers, function, swap

SPLIT = """\
B, T, width = x.shape
return x.view(B, T, n_heads, width // n_heads).transpose(1, 2)
"""
STEP = """\
K, V = torch.cat([K, k], dim=2), torch.cat([V, v], dim=2)
mask = torch.ones(1, K.shape[2], dtype=torch.bool)
return attend(q, K, V, mask, q.shape[-1] ** -0.5), K, V
"""
MOVES = """\
before, columns = f(x), []
for j in range(x.shape[1]):
    changed = x.clone()
    changed[0, j] = torch.randn(x.shape[2])
    columns.append((f(changed) != before).any(dim=-1)[0])
return torch.stack(columns, dim=1)
"""
COUNT = """\
C, D = config.hidden_size, config.head_dim
q, k = C * config.n_heads * D, C * config.n_kv_heads * D
mlp, norms = 3 * C * config.intermediate_size, 2 * C
words = config.vocab_size * C * (1 if config.tied else 2)
return words + config.n_layers * (q + k + k + q + mlp + norms) + C
"""
APPEND = """\
S = cache.length + k.shape[2]
if S > cache.max_len:
    raise ValueError(f"{S} rows; expected at most {cache.max_len}")
cache.k[layer, :, :, cache.length : S] = k
cache.v[layer, :, :, cache.length : S] = v
return cache.k[layer, :, :, :S], cache.v[layer, :, :, :S]
"""
CHECK = APPEND[APPEND.index("if") : APPEND.index("cache.k[")]
DIFFER = """\
difference = (a - b).abs().max()
best, second = a.topk(2).values.unbind(dim=1)
return best - second <= 2 * difference
"""
TPOT = """\
slope, fixed = np.polyfit(contexts, milliseconds, 1)
return fixed + slope * context
"""
BYTES = """\
H = config["num_attention_heads"]
Hkv = config.get("num_key_value_heads") or H
D = config.get("head_dim") or config["hidden_size"] // H
return 2 * config["num_hidden_layers"] * Hkv * D * 2
"""
LAYER = """\
for layer, (x, y) in enumerate(zip(a, b, strict=True)):
    if (x - y).abs().max() > tolerance:
        return layer
return None
"""
CONTEXT = """\
free = ram_gib * 2**30 - weights_bytes
return max(0, min(free // bytes_per_token, max_positions))
"""

WRONG: dict[str, Answers] = {
    "split_heads": {
        **function(
            "split_heads(x, n_heads)",
            view_alone=(
                "B, T, width = x.shape\nreturn x.view(B, n_heads, T, width // n_heads)",
                "gives head 0 in row 1 numbers 8 to 15 of token 0; expected numbers 0 to 7 of token 1.",
                "a view without a transpose",
            ),
            reshape_alone=(
                "return x.reshape(x.shape[0], n_heads, x.shape[1], -1)",
                "a view without a transpose",
            ),
            every_H_th=(
                "return x.view(*x.shape[:2], -1, n_heads).permute(0, 3, 1, 2)",
                "gives head 0 in row 0 numbers 0, 6, 12, … of token 0",
                "every H-th number",
            ),
            transposed_first=(
                "return x.transpose(1, 2).reshape(len(x), n_heads, x.shape[1], -1)",
                "gives head 0 in row 0 numbers of tokens 0, 1, 2, 3, 4; expected",
                "transposed before the view",
            ),
            transposed_and_viewed=(
                "return x.transpose(1, 2).view(len(x), n_heads, x.shape[1], -1)",
                "raises RuntimeError",
                "view first, then transpose",
            ),
            not_transposed=(
                swap(SPLIT, ".transpose(1, 2)", ""),
                "of shape (2, 5, 6, 8); expected (2, 6, 5, 8)",
                "not transposed",
            ),
            last_two_swapped=(
                swap(SPLIT, "transpose(1, 2)", "permute(0, 2, 3, 1)"),
                "the last two are swapped",
            ),
            heads_as_width=(
                swap(SPLIT, "n_heads, width // n_heads", "width // n_heads, n_heads"),
                "of shape (2, 8, 5, 6); expected (2, 6, 5, 8)",
                "n_heads is taken for the numbers of a head",
            ),
            heads_as_width_untransposed=(
                "return x.view(*x.shape[:2], -1, n_heads)",
                "n_heads is taken for the numbers of a head",
            ),
            list_of_heads=(
                "return [x[..., i * 8 : i * 8 + 8] for i in range(n_heads)]",
                "gives a list of 6 parts; expected a tensor of shape (2, 6, 5, 8)",
            ),
            heads_first=("return torch.stack(x.chunk(n_heads, dim=-1))", "the heads come first"),
            batch_lost=(swap(SPLIT, ".transpose(1, 2)", ".transpose(1, 2)[0]"), "the batch is lost"),
            batch_and_heads=(
                swap(SPLIT, ".transpose(1, 2)", ".transpose(1, 2).flatten(0, 1)"),
                "batch and heads are put together",
            ),
            heads_reversed=(swap(SPLIT, "transpose(1, 2)", "transpose(1, 2).flip(1)"), "wrong order"),
            hard_coded=(
                "return x.view(2, 5, 6, 8).transpose(1, 2)",
                "x (2, 5, 24)",
                "read them from x.shape",
            ),
            size_as_a_float=(
                swap(SPLIT, "width // n_heads", "width / n_heads"),
                "raises TypeError",
                "/ gives a float",
            ),
            heads_squared=(
                swap(SPLIT, "width // n_heads", "n_heads"),
                "raises RuntimeError",
                "these sizes are not those of x",
            ),
            tokens_reversed=(swap(SPLIT, "transpose(1, 2)", "transpose(1, 2).flip(2)"),),
            zeros=(swap(SPLIT, "transpose(1, 2)", "transpose(1, 2) * 0"),),
            halves=(
                swap(SPLIT, "transpose(1, 2)", "transpose(1, 2) + 0.5"),
                "other numbers (0.5, 1.5, 2.5 …)",
            ),
            not_in_place=("x += 1\n" + SPLIT, "changes its first argument"),
            raises=("return x.heads()", "AttributeError"),
            prints_only=("print(len(x))", "reaches no `return`"),
        ),
        "no function": (
            "split_heads = torch.zeros(2, 6)",
            "got a tensor of shape (2, 6); expected a function",
        ),
    },
    "torch_mask": function(
        "torch_mask(T, S)",
        top_left=(
            "return torch.ones(T, S, dtype=torch.bool).tril()",
            "torch_mask(2, 6) lets query 0 see key 0; expected keys 0 to 4.",
            "aligned top-left, as is_causal=True does it",
        ),
        no_mask=(
            "return torch.ones(T, S, dtype=torch.bool)",
            "lets query 0 see keys 0 to 5; expected keys 0 to 4.",
            "no mask",
        ),
        upside_down=("return torch.ones(T, S, dtype=torch.bool).triu(S - T + 1)", "upside down"),
        upside_down_top_left=(
            "return torch.ones(T, S, dtype=torch.bool).triu(1)",
            "upside down",
            "aligned top-left",
        ),
        mirrored=("return torch.arange(S) >= torch.arange(S - T, S)[:, None]", "mirrored"),
        not_itself=(
            "return torch.arange(S) < torch.arange(S - T, S)[:, None]",
            "a query sees itself too",
        ),
        one_ahead=(
            "return torch.ones(T, S, dtype=torch.bool).tril(S - T + 1)",
            "does not see the token after it",
        ),
        positions_from_1=(
            "return torch.arange(S) <= torch.arange(S - T + 1, S + 1)[:, None]",
            "does not see the token after it",
        ),
        stored_hidden=(
            "m = torch.zeros(T, S, dtype=torch.bool)\nm[:, S - T :] = torch.ones(T, T).tril() > 0\nreturn m",
            "the stored tokens are hidden",
        ),
        top_left_but_for_one=(
            "seen = torch.ones(T, S, dtype=torch.bool)\nreturn seen if T == 1 else seen.tril()",
            "lets query 0 see key 0; expected keys 0 to 4",
            "right for one new token alone",
        ),
        stored_and_itself=(
            "stored, own = torch.ones(T, S - T, dtype=torch.bool), torch.eye(T, dtype=torch.bool)\n"
            "return torch.cat([stored, own], dim=1)",
            "lets query 1 see keys 0, 1, 2, 3, 5",
            "sees the new ones before it too",
        ),
        stored_alone=("return (torch.arange(S) < S - T).expand(T, S)", "the stored tokens alone"),
        itself_alone=("return torch.arange(S) == torch.arange(S - T, S)[:, None]", "itself alone"),
        transposed=(
            "return (torch.arange(S) <= torch.arange(S - T, S)[:, None]).T",
            "transposed: rows are queries",
        ),
        square=(
            "return torch.ones(S, S, dtype=torch.bool).tril()",
            "of shape (6, 6); expected (2, 6)",
            "a square mask",
        ),
        four_axes=("return torch.ones(T, S, dtype=torch.bool).tril(S - T)[None, None]", "the two axes alone"),
        numbers=("return torch.ones(T, S).tril(S - T)", "gives numbers (float32); expected True and False"),
        scores=(
            "return torch.full((T, S), -torch.inf).triu(S - T + 1)",
            "numbers in a mask are added to the scores",
        ),
        numpy=("return np.tri(T, S, S - T, dtype=bool)", "make it with torch"),
        nothing_visible=("return torch.zeros(T, S, dtype=torch.bool)",),
        hard_coded=(
            "return torch.tensor([[True] * 5 + [False], [True] * 6])",
            "torch_mask(1, 5) gives a tensor of shape (2, 6)",
        ),
        raises=("return torch.ones(T, S).tril(t)", "NameError"),
    ),
    "cached_step": function(
        "cached_step(q, k, v, K, V)",
        attended_before_appending=(
            "mask = torch.ones(1, K.shape[2], dtype=torch.bool)\n"
            "contexts = attend(q, K, V, mask, q.shape[-1] ** -0.5)\n"
            "return contexts, torch.cat([K, k], dim=2), torch.cat([V, v], dim=2)",
            "attended before appending",
        ),
        own_row_hidden=(
            swap(STEP, "return", "mask[0, -1] = False\nreturn"),
            "attended before appending",
        ),
        old_mask=(
            "mask = torch.ones(1, K.shape[2], dtype=torch.bool)\n" + STEP.replace(STEP.splitlines()[1], ""),
            "K, V and the mask all have S + 1 keys",
        ),
        scale_forgotten=(swap(STEP, "q.shape[-1] ** -0.5", "1.0"), "scale forgotten"),
        root_forgotten=(swap(STEP, "q.shape[-1] ** -0.5", "1 / q.shape[-1]"), "the root is missing"),
        times_root=(swap(STEP, "q.shape[-1] ** -0.5", "q.shape[-1] ** 0.5"), "multiplied by √D instead"),
        times_width=(swap(STEP, "q.shape[-1] ** -0.5", "q.shape[-1]"), "multiplied by D instead"),
        all_heads=(
            swap(STEP, "q.shape[-1] ** -0.5", "(q.shape[1] * q.shape[-1]) ** -0.5"),
            "not the H · D of all",
        ),
        scale_of_another_axis=(
            swap(STEP, "q.shape[-1] ** -0.5", "q.shape[0] ** -0.5"),
            "D is the last axis of q",
        ),
        scale_of_the_keys=(
            swap(STEP, "q.shape[-1] ** -0.5", "K.shape[2] ** -0.5"),
            "D is the last axis of q",
        ),
        scaled_twice=(
            swap(STEP, "attend(q,", "attend(q * q.shape[-1] ** -0.5,"),
            "this one is 1 / D",
        ),
        no_softmax=(
            swap(
                swap(
                    STEP,
                    STEP.splitlines()[1],
                    "every = [x.repeat_interleave(len(q[0]) // len(x[0]), 1) for x in (K, V)]",
                ),
                "attend(q, K, V, mask, q.shape[-1] ** -0.5)",
                "q @ every[0].mT * q.shape[-1] ** -0.5 @ every[1]",
            ),
            "the softmax is missing",
        ),
        softmax_over_the_heads=(
            swap(
                swap(
                    STEP,
                    STEP.splitlines()[1],
                    "every = [x.repeat_interleave(len(q[0]) // len(x[0]), 1) for x in (K, V)]",
                ),
                "attend(q, K, V, mask, q.shape[-1] ** -0.5)",
                "(q @ every[0].mT * q.shape[-1] ** -0.5).softmax(1) @ every[1]",
            ),
            "the softmax runs over the keys",
        ),
        keys_averaged=(swap(STEP, "attend(q, K, V,", "attend(q, K, K,"), "the keys are averaged"),
        oldest_dropped=(
            "K, V = K[:, :, 1:], V[:, :, 1:]\n" + STEP,
            "the oldest row was dropped",
        ),
        square_mask=(
            swap(STEP, "torch.ones(1, K.shape[2]", "torch.ones(K.shape[2], K.shape[2]"),
            "the mask has one row",
        ),
        contexts_last=(
            swap(swap(STEP, "return ", "return K, V, "), ", K, V\n", "\n"),
            "gives contexts of shape (2, 3, 6, 8); expected (2, 6, 1, 8)",
            "the contexts come first",
        ),
        own_row_alone=(
            swap(STEP, "attend(q, K, V, mask,", "attend(q, k, v, mask[:, :1],"),
            "its own row alone",
        ),
        top_left=(swap(STEP, "dtype=torch.bool)", "dtype=torch.bool).tril()"), "aligned top-left"),
        nothing_visible=(swap(STEP, "torch.ones", "torch.zeros"), "nothing is visible"),
        wrong_axis=(STEP.replace("dim=2", "dim=-1"), "the wrong axis"),
        batch_axis=(STEP.replace("dim=2", "dim=0"), "the wrong axis"),
        mixed_up=(
            swap(STEP, "[K, k], dim=2), torch.cat([V, v]", "[K, v], dim=2), torch.cat([V, k]"),
            "k and v are mixed up",
        ),
        K_in_front=(swap(STEP, "[K, k]", "[k, K]"), "the new row of K is in front"),
        both_in_front=(
            swap(STEP, "[K, k], dim=2), torch.cat([V, v]", "[k, K], dim=2), torch.cat([v, V]"),
            "gives a new K that holds other numbers",
            "the new row is in front",
        ),
        expanded=(
            swap(
                STEP,
                "mask =",
                "K, V = (rows.repeat_interleave(q.shape[1] // rows.shape[1], 1) for rows in (K, V))\nmask =",
            ),
            "of shape (2, 6, 6, 8); expected (2, 3, 6, 8)",
            "expanded heads are stored: 2 times the bytes",
        ),
        old_rows_returned=(
            "old = K, V\n" + swap(STEP, ", K, V\n", ", *old\n"),
            "the new row is not stored",
        ),
        new_row_returned=(swap(STEP, ", K, V\n", ", k, v\n"), "the new row alone"),
        swapped=(swap(STEP, ", K, V\n", ", V, K\n"), "K and V are swapped"),
        contexts_alone=(
            swap(STEP, ", K, V\n", "\n"),
            "gives a tensor of shape (2, 6, 1, 8); expected the contexts, K and V",
            "K and V go back to the caller",
        ),
        last_row_overwritten=(
            "K[:, :, -1:], V[:, :, -1:] = k, v\n"
            "mask = torch.ones(1, K.shape[2], dtype=torch.bool)\n"
            "return attend(q, K, V, mask, q.shape[-1] ** -0.5), K, V",
            "changes its fourth argument",
        ),
        V_not_appended=(swap(STEP, "torch.cat([V, v], dim=2)", "V"), "K, V and the mask all have S + 1 keys"),
        one_head_too_few=(
            swap(
                STEP,
                "attend(q, K, V, mask, q.shape[-1] ** -0.5)",
                "torch.nn.functional.scaled_dot_product_attention(q, K, V)",
            ),
            "fewer KV heads than query heads",
        ),
        dealt_out_in_turns=(
            swap(
                STEP,
                "attend(q, K, V, mask,",
                "attend(q, K.repeat(1, q.shape[1] // K.shape[1], 1, 1), "
                "V.repeat(1, q.shape[1] // K.shape[1], 1, 1), mask,",
            ),
            "dealt out in turns",
        ),
        first_head_alone=(
            swap(STEP, "attend(q, K, V,", "attend(q, K[:, :1], V[:, :1],"),
            "the first KV head alone is read",
        ),
        token_axis_lost=(
            swap(STEP, "** -0.5), K", "** -0.5)[:, :, 0], K"),
            "the axis T is lost",
        ),
        hard_coded_scale=(swap(STEP, "q.shape[-1] ** -0.5", "8 ** -0.5"), "B, H, Hkv, S, D = 1, 4, 1, 3, 6"),
        zero_stored=(
            swap(STEP, ", K, V\n", ", K * 0, V\n"),
            "gives a new K that holds other numbers",
        ),
    ),
    "who_moves": {
        **function(
            "who_moves(f, x)",
            transposed=(
                swap(MOVES, "dim=1", "dim=0"),
                "says at [1, 0] False; expected True, as changing token 0 changes row 1.",
                "transposed",
            ),
            upside_down=(swap(MOVES, "!=", "=="), "upside down"),
            upside_down_any=(swap(MOVES, "!= before).any(", "== before).all("), "upside down"),
            last_row_only=(
                swap(MOVES, ".any(dim=-1)[0]", ".any(dim=-1)[0, -1:].expand(x.shape[1])"),
                "only one row is compared",
            ),
            own_row_only=(
                "return torch.eye(x.shape[1], dtype=torch.bool)",
                "only one row is compared",
            ),
            inputs_compared=(
                swap(MOVES, "(f(changed) != before)", "(changed != x)"),
                "only one row is compared",
            ),
            whole_output=(
                swap(MOVES, ".any(dim=-1)[0]", ".any().expand(x.shape[1])"),
                "True everywhere: compare each row of f(changed)",
            ),
            channel=(
                swap(MOVES, "changed[0, j] = torch.randn(x.shape[2])", "changed[:, :, j] += 1"),
                "token j is x[:, j]",
            ),
            inputs_and_outputs=(
                swap(MOVES, "f(changed) != before", "f(changed) != changed"),
                "with the same row of f(x)",
            ),
            piling_up=(
                "changed = x.clone()\n" + swap(MOVES, "    changed = x.clone()\n", ""),
                "the changes pile up",
            ),
            constant_added=(
                swap(MOVES, "changed[0, j] = torch.randn(x.shape[2])", "changed[0, j] += 1").replace(
                    "f(changed) != before", "(f(changed) - before).abs() > 1e-5"
                ),
                "each token less its own mean",
                "adds the same to every number",
            ),
            constant_added_exactly=(
                swap(MOVES, "changed[0, j] = torch.randn(x.shape[2])", "changed[0, j] += 1"),
                "each token less its own mean",
                "adds the same to every number",
            ),
            doubled_exactly=(
                swap(MOVES, "changed[0, j] = torch.randn(x.shape[2])", "changed[0, j] *= 2"),
                "RMSNorm",
                "a norm hides lengths",
            ),
            sums=(
                swap(
                    MOVES,
                    "(f(changed) != before).any(dim=-1)",
                    "((f(changed).sum(dim=-1) - before.sum(dim=-1)).abs() > 1e-4)",
                ),
                "a linear layer",
                "the sums of rows were compared",
            ),
            lengths=(
                swap(
                    MOVES,
                    "(f(changed) != before).any(dim=-1)",
                    "((f(changed).norm(dim=-1) - before.norm(dim=-1)).abs() > 1e-4)",
                ),
                "a norm hides lengths",
            ),
            first_number=(
                swap(MOVES, ".any(dim=-1)[0]", "[0, :, 0]"),
                "one number alone is changed or compared",
            ),
            one_number_changed=(
                swap(MOVES, "changed[0, j] = torch.randn(x.shape[2])", "changed[0, j, 0] += 1"),
                "one number alone is changed or compared",
            ),
            longer=(
                swap(MOVES, "changed[0, j] = torch.randn(x.shape[2])", "changed[0, j] *= 2").replace(
                    "f(changed) != before", "(f(changed) - before).abs() > 1e-5"
                ),
                "RMSNorm",
                "a norm hides lengths",
            ),
            signed=(
                swap(MOVES, "!= before", "> before"),
                "on sums so far, their signs in turns, T = 5, says at",
                "compare with !=, or take abs() first",
            ),
            signed_the_other_way=(
                swap(MOVES, "!= before", "< before"),
                "compare with !=, or take abs() first",
            ),
            every_number=(
                swap(MOVES, ".any(dim=-1)", ".all(dim=-1)"),
                "half of each token",
                "not only if all are",
            ),
            too_small=(
                swap(MOVES, "= torch.randn(x.shape[2])", "+= 1e-12"),
                "no change is seen",
            ),
            unchanged_copy_run=(swap(MOVES, "f(changed)", "f(x)"), "no change is seen"),
            always=("return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)", "True everywhere"),
            lower_triangle=(
                "return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()",
                "the lower triangle, whatever f does",
            ),
            in_place=(swap(MOVES, "x.clone()", "x"), "changes its second argument"),
            numbers=(swap(MOVES, ", dim=1)", ", dim=1).float()"), "gives numbers (float32)"),
            batch_kept=(
                swap(MOVES, "(dim=-1)[0]", "(dim=-1)"),
                "expected (5, 5)",
            ),
            batch_dropped=(
                swap(MOVES, "f(changed)", "f(changed[0])"),
                "f, causal attention, got a tensor of shape (5, 8); expected a tensor (1, T, C)",
            ),
            hard_coded_length=(
                swap(MOVES, "range(x.shape[1])", "range(5)"),
                "on a linear layer, T = 3, raises IndexError",
            ),
            first_moves_nothing=(swap(MOVES, "return torch", "columns[0] &= False\nreturn torch"),),
        ),
        "no function": ("who_moves = True", "expected a function"),
    },
    "shift_targets": function(
        "shift_targets(tokens)",
        not_shifted=(
            "return tokens[:, :-1], tokens[:, :-1]",
            "pairs",
            "not shifted: the model is asked for the token that it is given.",
            "gets the loss 0.00",
        ),
        not_shifted_from_1=("return tokens[:, 1:], tokens[:, 1:]", "not shifted"),
        shifted_twice=(
            "return tokens[:, :-2], tokens[:, 2:]",
            "gives (2, 4) and (2, 4); expected (2, 5) twice",
            "shifted twice",
        ),
        targets_shifted_twice=("return tokens[:, :-1], tokens[:, 2:]", "shifted twice"),
        wrong_axis=(
            "return tokens[:-1], tokens[1:]",
            "gives (1, 6) and (1, 6); expected (2, 5) twice",
            "the wrong axis",
        ),
        rolled=("return tokens, tokens.roll(-1, 1)", "nothing is cut"),
        rolled_and_cut=("return tokens[:, 1:], tokens.roll(-1, 1)[:, 1:]", "rolled"),
        whole_inputs=("return tokens, tokens[:, 1:]", "so it is no input"),
        whole_targets=("return tokens[:, :-1], tokens", "so it is no target"),
        swapped=("return tokens[:, 1:], tokens[:, :-1]", "swapped"),
        backwards=("return tokens[:, :-1], tokens.roll(1, 1)[:, :-1]", "the wrong direction"),
        first_token=(
            "return tokens[:, :-1], tokens[:, :1].expand(-1, tokens.shape[1] - 1)",
            "every target is the first token",
        ),
        one_tensor=("return tokens[:, 1:]", "expected inputs and targets"),
        flat=(
            "return tokens[:, :-1], tokens[:, 1:].flatten()",
            "gives targets of shape (10,); expected (2, 5)",
        ),
        last_only=("return tokens[:, :-1], tokens[:, -1]", "gives targets of shape (2,)"),
        floats=(
            "return tokens[:, :-1].float(), tokens[:, 1:].float()",
            "gives inputs of float32; expected int64",
            "ids stay whole numbers",
        ),
        float_targets=(
            "return tokens[:, :-1], tokens[:, 1:] + 0.005",
            "gives targets of float32; expected int64",
            "ids stay whole numbers",
        ),
        lists=("return tokens[:, :-1].tolist(), tokens[:, 1:].tolist()", "expected a tensor of shape (2, 5)"),
        in_place=("tokens[:, 0] = 0\nreturn tokens[:, :-1], tokens[:, 1:]", "changes its first argument"),
        unlisted=("return tokens[:, :-1], tokens[:, 1:].flip(1)",),
        raises=("return tokens[:, :-1], token[:, 1:]", "NameError"),
    ),
    "count_parameters": function(
        "count_parameters(config)",
        query_heads=(
            swap(
                COUNT,
                "k = C * config.n_heads * D, C * config.n_kv_heads * D",
                "k = [C * config.n_heads * D] * 2",
            ),
            "13,271,040 too many",
            "query heads were counted for K and V",
        ),
        four_squares=(
            swap(COUNT, "q + k + k + q", "4 * C * C"),
            "query heads were counted for K and V",
        ),
        no_norms=(
            swap(
                COUNT,
                "norms = 3 * C * config.intermediate_size, 2 * C",
                "norms = 3 * C * config.intermediate_size, 0",
            ).replace(") + C\n", ")\n"),
            "gives 134,479,872; expected 134,515,008: 35,136 too few",
            "the norms were forgotten",
        ),
        no_last_norm=(swap(COUNT, ") + C\n", ")\n"), "576 too few", "the norm at the end was forgotten"),
        no_layer_norms=(swap(COUNT, " + norms", ""), "the two norms of each layer"),
        one_layer_norm=(
            swap(COUNT, "intermediate_size, 2 * C", "intermediate_size, C"),
            "each layer has two",
        ),
        tied_twice=(
            swap(COUNT, "(1 if config.tied else 2)", "2"),
            "28,311,552 too many",
            "a tied matrix was counted twice",
        ),
        untied_once=(
            swap(COUNT, " * (1 if config.tied else 2)", ""),
            "for Llama-3.1-8B gives",
            "untied, the readout has a matrix of its own",
        ),
        tied_mixed_up=(swap(COUNT, "1 if config.tied else 2", "2 if config.tied else 1"), "mixed up"),
        no_words=(swap(COUNT, "return words + ", "return "), "embedding and readout were forgotten"),
        two_matrices=(swap(COUNT, "3 * C", "2 * C"), "the MLP has three matrices"),
        no_mlp=(swap(COUNT, " + mlp", ""), "the MLP was forgotten"),
        no_output=(swap(COUNT, "k + k + q", "k + k"), "q_proj or o_proj is missing"),
        K_alone=(swap(COUNT, "k + k + q", "k + q"), "K or V is missing"),
        one_layer=(swap(COUNT, "config.n_layers * ", ""), "one layer only"),
        square_q=(
            swap(COUNT, "q, k = C * config.n_heads * D", "q, k = C * C"),
            "a small model with H · D over C",
            "H · D need not be C",
        ),
        no_queries=(swap(COUNT, "(q + k", "(k"), "q_proj or o_proj is missing"),
        last_norm_in_each_layer=(
            swap(swap(COUNT, "intermediate_size, 2 * C", "intermediate_size, 3 * C"), ") + C\n", ")\n"),
            "the norm at the end is one",
        ),
        norms_once=(
            swap(swap(COUNT, " + norms", ""), ") + C\n", ") + C + norms\n"),
            "the two norms are in every layer",
        ),
        output_of_KV_heads=(swap(COUNT, "k + k + q", "k + k + k"), "goes back from the H · D"),
        biases=(
            swap(COUNT, " + norms", " + norms + D * (config.n_heads + 2 * config.n_kv_heads)"),
            "no biases here",
        ),
        four_times_C=(swap(COUNT, "config.intermediate_size", "4 * C"), "it need not be 4 C"),
        positions=(
            swap(COUNT, ") + C\n", ") + C + C * config.max_seq_len\n"),
            "rotary positions learn nothing",
        ),
        hard_coded=("return 134_515_008", "for Llama-3.1-8B gives 134,515,008"),
        wrong_name=(
            swap(COUNT, "config.n_layers", "config.num_hidden_layers"),
            "AttributeError",
            "such as n_kv_heads",
        ),
        text=("return '134,515,008'", "expected one number"),
        infinity=("return float('inf')", "gives inf; expected 134,515,008"),
    ),
    "append": function(
        "append(cache, layer, k, v)",
        advanced_in_each_layer=(
            swap(APPEND, "return", "start, cache.length = cache.length, S\nreturn"),
            "append, rows 0 to 2, layer 0, leaves cache.length at 3; expected 0.",
            "advanced in each layer",
        ),
        advanced_by_the_last_layer=(
            swap(APPEND, "return", "start = cache.length\nif layer == 2:\n    cache.length = S\nreturn"),
            "append, rows 0 to 2, layer 2, leaves cache.length at 3; expected 0.",
            "advanced by the last layer",
        ),
        advanced_by_the_first_layer=(
            swap(APPEND, "return", "cache.length = S if layer == 0 else cache.length\nreturn"),
            "advanced by layer 0",
        ),
        added=(
            APPEND.replace("S] =", "S] +="),
            "append to a cache cut back to 2 rows, row 2, layer 0, adds k to cache.k",
            "assign with =, not with +=",
        ),
        first_zero_row=(
            "start = int((cache.k[layer, 0, 0, :, 0] != 0).sum())\n"
            + APPEND.replace("cache.length", "start").replace("S]", "start + k.shape[2]]"),
            "append to a cache cut back to 2 rows",
        ),
        asserted=(
            APPEND.replace(CHECK, "assert S <= cache.max_len\n"),
            "raises AssertionError; expected a ValueError.",
            "python -O skips every assert",
        ),
        advanced_by_one=(
            swap(APPEND, "return", "cache.length += 1\nreturn"),
            "advanced in each layer",
        ),
        reset=(
            swap(APPEND, "return", "start, cache.length = cache.length, -1\nreturn"),
            "cache.length at -1",
        ),
        whole_buffer=(
            APPEND.replace("[layer, :, :, :S]", "[layer]"),
            "gives keys of shape (2, 3, 6, 4); expected (2, 3, 3, 4)",
            "the whole buffer: rows that nobody has written",
        ),
        positions_restarted=(
            APPEND.replace("cache.length : S]", ": k.shape[2]]"),
            "append, row 3, layer 0, changes row 0 of layer 0 in cache.k; expected row 3 of layer 0",
            "positions restarted at 0",
        ),
        new_rows_alone=(
            swap(APPEND, "return cache.k[layer, :, :, :S], cache.v[layer, :, :, :S]", "return k, v"),
            "gives keys of shape (2, 3, 1, 4); expected (2, 3, 4, 4)",
            "the new rows alone",
        ),
        rows_from_before=(
            APPEND.replace("[layer, :, :, :S]", "[layer, :, :, : cache.length]"),
            "the new ones are missing",
        ),
        one_layer=(
            APPEND.replace("[layer,", "[0,"),
            "layer 1, changes rows 0 to 2 of layer 0",
            "each layer has rows of its own",
        ),
        every_layer=(
            APPEND.replace("[layer, :, :, cache", "[:, :, :, cache"),
            "each layer has rows of its own",
        ),
        one_too_far=(
            APPEND.replace("cache.length : S]", "cache.length + 1 : S + 1]"),
            "one row too far",
        ),
        at_the_end=(APPEND.replace("cache.length : S]", "-k.shape[2] :]"), "at the end of the buffer"),
        mixed_up=(
            swap(APPEND, "= k\n", "= v\n"),
            "writes other numbers into cache.k than those of k",
            "k goes into cache.k",
        ),
        returned_swapped=(
            swap(
                APPEND, "return cache.k[layer, :, :, :S], cache.v", "return cache.v[layer, :, :, :S], cache.k"
            ),
            "gives keys that are not rows 0 to 2 of cache.k[0]",
            "keys come first",
        ),
        all_layers=(APPEND.replace("[layer, :, :, :S]", "[:, :, :, :S]"), "all layers; only this one"),
        copies=(
            APPEND.replace("[layer, :, :, :S]", "[layer, :, :, :S].clone()"),
            "gives keys that are a copy; expected a view",
            "every row is copied again",
        ),
        concatenated=(
            f"S = cache.length + k.shape[2]\n{CHECK}"
            "return [torch.cat([old[layer, :, :, : cache.length], new], dim=2) "
            "for old, new in ((cache.k, k), (cache.v, v))]",
            "leaves cache.k as it was; expected rows 0 to 2 of layer 0 to change",
            "assign into cache.k[layer] by a slice",
        ),
        other_buffers=(
            "import copy\n" + swap(APPEND, "return", "cache.k = cache.k.clone()\nreturn"),
            "puts other tensors in place of cache.k or cache.v",
        ),
        not_checked=(
            APPEND.replace(CHECK, ""),
            "append of 1 row to 6 of 6 raises nothing; expected a ValueError",
            "these rows are lost without a word",
        ),
        not_checked_nothing_raised=(
            APPEND.replace(CHECK, "S, T = min(S, 6), min(S, 6) - cache.length\n")
            .replace("= k\n", "= k[:, :, :T]\n")
            .replace("= v\n", "= v[:, :, :T]\n"),
            "raises nothing; expected a ValueError",
            "check S against cache.max_len first",
        ),
        checked_late=(
            swap(swap(APPEND, CHECK, ""), "= k\n", "= k[:, :, : cache.max_len - cache.length]\n" + CHECK),
            "raises ValueError and changes the cache",
            "written before it was checked",
        ),
        nothing_on_overflow=(
            swap(APPEND, CHECK.splitlines()[1].strip(), "return None"),
            "append of 1 row to 6 of 6 gives None; expected a ValueError",
        ),
        heads_for_rows=(
            swap(APPEND, "k.shape[2]", "k.shape[1]"),
            "append, row 3, layer 0, changes rows 3 to 5",
        ),
        batch_for_rows=(swap(APPEND, "k.shape[2]", "len(k)"), "T = k.shape[2] rows"),
        one_row=(
            APPEND.replace("cache.length : S] = ", "cache.length] = "),
            "raises RuntimeError",
            "T = k.shape[2] rows",
        ),
        another_error=(
            swap(APPEND, "ValueError", "IndexError"),
            "raises IndexError",
            "expected a ValueError",
        ),
        own_count=(
            "rows = append.__dict__\n"
            + swap(APPEND, "return", "rows[layer] = S\nreturn").replace("cache.length", "rows.get(layer, 0)"),
            "append to a cache cut back to 2 rows, row 2, layer 0, raises ValueError",
            "not from a count of your own",
        ),
        hard_coded_length=(
            swap(APPEND, "if S > cache.max_len", "if S > 6"),
            "append of 3 rows to 3 of 5 raises RuntimeError",
            "compare S with cache.max_len",
        ),
        full_refused=(
            swap(APPEND, "S > cache.max_len", "S >= cache.max_len"),
            "append, rows 4 to 5, layer 0, raises ValueError",
            "only more than max_len are too many",
        ),
        one_tensor=(swap(APPEND, ":S], cache.v[layer, :, :, :S]", ":S]"), "expected keys and values"),
        nothing_returned=(APPEND[: APPEND.index("return")], "gives None", "reaches no `return`"),
        keys_written_over=(swap(APPEND, "return", "k += 1\nreturn"), "changes its third argument"),
        raises=(swap(APPEND, "cache.v[layer, :, :, cache.length : S]", "cache.w[layer]"), "AttributeError"),
    ),
    "may_differ": function(
        "may_differ(a, b)",
        once=(
            swap(DIFFER, "2 * difference", "difference"),
            "gives False for row 0 (margin 0.15, largest difference 0.1); expected True",
            "held against the difference once",
        ),
        does_differ=("return a.argmax(1) != b.argmax(1)", "where the two choose differently now"),
        upside_down=(swap(DIFFER, "<=", ">"), "the other way round"),
        best_logits_alone=(
            swap(DIFFER, "(a - b)", "(a.amax(1) - b.amax(1))"),
            "the smallest of row 3 moved, gives False for row 0",
            "the best logits alone were compared",
        ),
        two_best_alone=(
            swap(DIFFER, "(a - b)", "(a.topk(2).values - b.topk(2).values)"),
            "the best logits alone were compared",
        ),
        each_row=(swap(DIFFER, "max()", "amax(1)"), "the largest of all rows may come in any row"),
        mean_difference=(swap(DIFFER, "max()", "mean()"), "the mean difference was taken"),
        without_abs=(swap(DIFFER, ".abs()", ""), "abs() before max()"),
        margin_to_the_mean=(
            "return a.max(1).values - a.mean(1) <= 2 * (a - b).abs().max()",
            "not to the mean of all",
        ),
        margin_to_the_smallest=(
            "return a.amax(1) - a.amin(1) <= 2 * (a - b).abs().max()",
            "not to the smallest",
        ),
        first_two=("return a[:, 0] - a[:, 1] <= 2 * (a - b).abs().max()", "not the first two"),
        best_alone=("return a.amax(1) <= 2 * (a - b).abs().max()", "the best logit itself"),
        margins_of_b=(
            swap(DIFFER, "a.topk(2)", "b.topk(2)"),
            "gives True for row 3 (margin 0.25, largest difference 0.1); expected False",
            "the margins are those of a",
        ),
        margin_doubled=(
            swap(swap(DIFFER, "2 * ", ""), "best - second", "2 * (best - second)"),
            "not twice the margin",
        ),
        log_softmax=(
            "a, b = a.log_softmax(1), b.log_softmax(1)\n" + DIFFER,
            "softmax is not needed",
        ),
        softmax=(
            "a, b = a.softmax(1), b.softmax(1)\n" + DIFFER,
            "softmax is not needed",
        ),
        four_times=(swap(DIFFER, "2 *", "4 *"), "four times the difference"),
        a_table=("return a - a.topk(2).values[:, 1:] <= 2 * (a - b).abs().max()", "expected (5,)"),
        one_bool=(
            "return bool((a.topk(2).values.diff(dim=1).abs() <= 2 * (a - b).abs().max()).any())",
            "gives True (bool); expected a tensor of shape (5,)",
        ),
        margins=("return a.topk(2).values.diff(dim=1)[:, 0]", "expected True and False"),
        columns=("return a.topk(2, dim=0).values.diff(dim=0)[0].abs() < 1", "of shape (6,); expected (5,)"),
        always=("return torch.ones(len(a), dtype=torch.bool)", "True for every row"),
        second_less_best=(swap(DIFFER, "best - second", "second - best"), "never below 0"),
        two_smallest=(
            "two = a.sort(dim=1).values[:, :2]\nreturn two[:, 1] - two[:, 0] <= 2 * (a - b).abs().max()",
            "sorted upwards",
        ),
        best_of_all_rows=(swap(DIFFER, "return best", "return a.max()"), "each row has its own"),
        best_of_a_second_of_b=(
            swap(DIFFER, "return best - second", "return best - b.topk(2).values[:, 1]"),
            "gives True for row 3",
            "the margins are those of a",
        ),
        never=("return torch.zeros(len(a), dtype=torch.bool)",),
        raises=(swap(DIFFER, "topk(2)", "topk(k)"), "NameError"),
    ),
    "predict_tpot": function(
        "predict_tpot(contexts, milliseconds, context)",
        proportional=(
            "return milliseconds[-1] / contexts[-1] * context",
            "gives 13.6 ms; expected 10.79 ms",
            "proportional: the line does not go through 0",
        ),
        proportional_first=("return milliseconds[0] / contexts[0] * context", "does not go through 0"),
        least_squares_through_0=(
            "x = np.array(contexts)\nreturn x @ milliseconds / (x @ x) * context",
            "does not go through 0",
        ),
        mean_ratio=(
            "return np.mean(np.array(milliseconds) / np.array(contexts)) * context",
            "does not go through 0",
        ),
        last_repeated=("return milliseconds[-1]", "gives 6.8 ms", "the last time was repeated"),
        mean=("return np.mean(milliseconds)", "the mean of the times"),
        first_and_last=(
            "slope = (milliseconds[-1] - milliseconds[0]) / (contexts[-1] - contexts[0])\n"
            "return milliseconds[-1] + slope * (context - contexts[-1])",
            "a line through two of the points",
        ),
        last_two=(
            "slope, fixed = np.polyfit(contexts[-2:], milliseconds[-2:], 1)\nreturn fixed + slope * context",
            "a line through two of the points",
        ),
        no_fixed_part=(swap(TPOT, "fixed + ", ""), "the fixed part is left out"),
        at_0=(swap(TPOT, " + slope * context", ""), "the time at context 0"),
        slope_second=(swap(TPOT, "slope, fixed", "fixed, slope"), "gives the slope first"),
        swapped=(
            swap(TPOT, "contexts, milliseconds", "milliseconds, contexts"),
            "contexts and times are swapped",
        ),
        curve=(
            "return np.polyval(np.polyfit(contexts, milliseconds, 2), context)",
            "a curve was fitted",
        ),
        seconds=(
            swap(TPOT, "return fixed + slope * context", "return (fixed + slope * context) / 1000"),
            "seconds",
        ),
        added_to_the_first=(swap(TPOT, "fixed + ", "milliseconds[0] + "), "added to a measured time"),
        added_to_the_last=(swap(TPOT, "fixed + ", "milliseconds[-1] + "), "added to a measured time"),
        interpolated=("return np.interp(context, contexts, milliseconds)", "the last time was repeated"),
        hard_coded=("return 10.79", "predict_tpot([100, 200, 400]"),
        text=("return '10.79 ms'", "expected one number"),
        all_of_them=("return np.polyfit(contexts, milliseconds, 1)", "expected one number"),
        raises=(swap(TPOT, "np.polyfit", "polyfit"), "NameError"),
        in_place=(
            "contexts.append(context)\n" + TPOT.replace("(contexts,", "(contexts[:-1],"),
            "changes its first",
        ),
    ),
    "bytes_per_token": {
        **function(
            "bytes_per_token(config)",
            query_heads=(
                swap(BYTES, "Hkv * D", "H * D"),
                "for SmolLM2-135M, gives 67.5 KiB; expected 22.5 KiB.",
                "query heads were counted",
            ),
            hidden_size=(swap(BYTES, "Hkv * D", 'config["hidden_size"]'), "query heads were counted"),
            K_or_V_only=(
                swap(BYTES, "return 2 * config", "return config"),
                "gives 11.25 KiB; expected 22.5 KiB",
                "half of it: K and V are both kept",
            ),
            four_bytes=(
                swap(BYTES, "D * 2", "D * 4"),
                "gives 45 KiB; expected 22.5 KiB",
                "twice too much",
            ),
            one_layer=(
                swap(BYTES, 'config["num_hidden_layers"] * ', ""),
                "gives 768 bytes",
                "one layer only",
            ),
            one_head=(swap(BYTES, "Hkv * D", "D"), "one KV head only"),
            numbers=(swap(BYTES, "D * 2", "D"), "gives 11.25 KiB", "a number has two bytes"),
            numbers_of_K=(swap(BYTES, "D * 2", "D / 2"), "gives 5.62 KiB", "a quarter of it"),
            no_head_dim=(swap(BYTES, "Hkv * D", "Hkv"), "gives 360 bytes", "head_dim is left out"),
            MLP_width=(
                swap(BYTES, "Hkv * D", 'config["intermediate_size"]'),
                "gives 180 KiB",
                "the MLP's width",
            ),
            bits=(swap(BYTES, "D * 2", "D * 16"), "bits"),
            KiB=(swap(BYTES, "D * 2", "D * 2 / 1024"), "gives 22.5 bytes; expected 22.5 KiB", "KiB; bytes"),
            kB=(swap(BYTES, "D * 2", "D * 2 / 1000"), "kB; bytes are asked for"),
            head_dim_computed=(
                swap(BYTES, 'config.get("head_dim") or ', ""),
                "for Mistral-Nemo, head_dim 128, gives 200 KiB; expected 160 KiB",
                "head_dim is what the config says",
            ),
            head_dim_by_KV_heads=(
                swap(BYTES, 'config["hidden_size"] // H', 'config["hidden_size"] // Hkv'),
                "gives 67.5 KiB",
                "not / num_key_value_heads",
            ),
            groups=(swap(BYTES, "Hkv * D", "(H // Hkv) * D"), "how many query heads share a KV head"),
            queries_too=(swap(BYTES, "Hkv * D", "(H + 2 * Hkv) / 2 * D"), "queries are not kept"),
            queries_and_keys=(
                swap(BYTES, "2 * config", "config").replace("Hkv * D", "(H + Hkv) * D"),
                "queries are not kept",
            ),
            three=(swap(BYTES, "return 2 *", "return 3 *"), "queries are not kept"),
            head_dim_missing=(
                swap(BYTES, 'config.get("head_dim") or config["hidden_size"] // H', 'config["head_dim"]'),
                "KeyError: 'head_dim'",
                "not every config.json has head_dim",
            ),
            head_dim_null=(
                swap(
                    BYTES,
                    '.get("head_dim") or config["hidden_size"] // H',
                    '.get("head_dim", config["hidden_size"] // H)',
                ),
                "for Llama-3.1-8B, raises TypeError",
                "or it is null",
            ),
            KV_heads_missing=(
                swap(BYTES, 'config.get("num_key_value_heads") or H', 'config["num_key_value_heads"]'),
                "for Llama-2-7B, without num_key_value_heads, raises KeyError",
                "as many KV heads as query heads",
            ),
            KV_heads_none=(
                swap(BYTES, " or H\n", "\n"),
                "raises TypeError",
                "as many KV heads as query heads",
            ),
            one_where_missing=(
                swap(BYTES, '.get("num_key_value_heads") or H', '.get("num_key_value_heads", 1)'),
            ),
            hard_coded=("return 23040", "for Llama-3.1-8B, gives 22.5 KiB; expected 128 KiB"),
            attribute=(swap(BYTES, 'config["num_attention_heads"]', "config.n_heads"), "AttributeError"),
            text=("return '22.5 KiB'", "expected one number"),
            NaN=("return float('nan')", "gives NaN bytes"),
        ),
        "no function": ("bytes_per_token = 23040", "expected a function"),
    },
    "first_difference": function(
        "first_difference(a, b, tolerance)",
        position_0=(
            swap(LAYER, "(x - y)", "(x[0] - y[0])"),
            "of a model and one misread from layer 2 on gives None; expected layer 2.",
            "position 0 alone is compared: it sees itself alone",
        ),
        first_number=(swap(LAYER, "(x - y).abs().max()", "(x - y).abs()[0, 0]"), "position 0 alone"),
        last_position=(swap(LAYER, "(x - y)", "(x[-1] - y[-1])"), "the last position alone"),
        signed=(swap(LAYER, ".abs()", ""), "without the sign"),
        sign_taken_late=(
            swap(LAYER, "(x - y).abs().max()", "(x - y).max().abs()"),
            "without the sign",
        ),
        all_numbers=(
            swap(LAYER, "(x - y).abs().max() > tolerance", "((x - y).abs() > tolerance).all()"),
            "two layers differ if any number does",
        ),
        smallest=(swap(LAYER, "max()", "min()"), "two layers differ if any number does"),
        without_position_0=(swap(LAYER, "(x - y)", "(x[1:] - y[1:])"), "position 0 is left out"),
        norm=(swap(LAYER, "abs().max()", "norm()"), "by 0.005 everywhere", "the differences are added up"),
        added_up=(swap(LAYER, "max()", "sum()"), "the differences are added up"),
        mean=(swap(LAYER, "max()", "mean()"), "the mean difference was taken"),
        exact=(
            swap(LAYER, "(x - y).abs().max() > tolerance", "not torch.equal(x, y)"),
            "gives layer 0; expected layer 2",
            "the tolerance is left out",
        ),
        sums=(swap(LAYER, "(x - y).abs().max()", "(x.sum() - y.sum()).abs()"), "the sums were compared"),
        allclose=(
            swap(LAYER, "(x - y).abs().max() > tolerance", "not torch.allclose(x, y, atol=tolerance)"),
            "that differ by 0.015 in layer 3, numbers near 1000, gives None; expected layer 3",
            "pass rtol=0",
        ),
        relative=(
            swap(LAYER, "(x - y).abs().max()", "((x - y) / x).abs().max()"),
            "relative to the size of the numbers",
        ),
        relative_allclose=(
            swap(LAYER, "(x - y).abs().max() > tolerance", "not torch.allclose(x, y, rtol=tolerance)"),
            "relative to the size of the numbers",
        ),
        hard_coded_tolerance=(swap(LAYER, "> tolerance", "> 1e-4"), "a tolerance of its own"),
        at_tolerance=(swap(LAYER, "> tolerance", ">= tolerance"), "tolerance 0", "> and not >="),
        squared=(swap(LAYER, ".abs()", ".square()"), "the square of a small difference"),
        root_of_the_mean_square=(
            swap(LAYER, "(x - y).abs().max()", "(x - y).square().mean().sqrt()"),
            "one position may differ and be lost in it",
        ),
        largest_numbers=(
            swap(LAYER, "(x - y).abs().max()", "(x.max() - y.max()).abs()"),
            "the largest numbers of both were compared",
        ),
        last_layer=(
            "found = None\n"
            + swap(swap(LAYER, "return layer", "found = layer"), "return None", "return found"),
            "return from the loop at the first",
        ),
        largest=(
            "return int(torch.tensor([(x - y).abs().max() for x, y in zip(a, b)]).argmax())",
            "the layer that differs most",
        ),
        from_1=(swap(LAYER, "return layer", "return layer + 1"), "counted from 1"),
        agrees=(swap(LAYER, "> tolerance", "<= tolerance"), "the first layer that agrees"),
        first_layer_decides=(
            swap(LAYER, "return None", "    return None"),
            "the first layer decides alone",
        ),
        never=("if a:\n    return None", "None is given only if all layers agree"),
        how_many=(
            "return sum(bool((x - y).abs().max() > tolerance) for x, y in zip(a, b))",
            "the number of layers that differ",
        ),
        minus_one=(swap(LAYER, "return None", "return -1"), "gives -1; expected a layer from 0 on, or None"),
        minus_one_float=(swap(LAYER, "return None", "return -1.0"), "gives -1; expected a layer from 0 on"),
        zero_where_equal=(
            swap(LAYER, "return None", "return 0"),
            "itself, rounded otherwise, gives layer 0; expected None",
            "0 stands for layer 0",
        ),
        first_of_a_list=(
            "return [n for n in range(len(a)) if (a[n] - b[n]).abs().max() > tolerance][0]",
            "raises IndexError",
            "where all layers agree, nothing is found",
        ),
        next_of_nothing=(
            "return next(n for n in range(len(a)) if (a[n] - b[n]).abs().max() > tolerance)",
            "raises StopIteration",
            "where all layers agree, nothing is found",
        ),
        without_layer_0=(
            swap(swap(LAYER, "(a, b, ", "(a[1:], b[1:], "), "return layer", "return layer + 1"),
            "layer 0 is left out",
        ),
        without_the_last_layer=(
            swap(LAYER, "(a, b, ", "(a[:-1], b[:-1], "),
            "the last layer is left out",
        ),
        hard_coded_depth=(
            "return next((n for n in range(5) if (a[n] - b[n]).abs().max() > tolerance), None)",
            "itself, rounded otherwise, raises IndexError",
        ),
        length_where_equal=(
            swap(LAYER, "return None", "return len(a)"),
            "itself, rounded otherwise, gives layer 4; expected None",
        ),
        own_tolerance=(swap(LAYER, "> tolerance", "> 0.5"),),
        a_bool=(swap(LAYER, "return layer", "return True"), "expected one number"),
        a_list=(
            "return [n for n in range(len(a)) if (a[n] - b[n]).abs().max() > tolerance]",
            "expected one number",
        ),
        no_reduction=(swap(LAYER, ".max()", ""), "RuntimeError"),
        written_to=("a[0] += 1\n" + LAYER, "changes its first argument"),
        raises=(swap(LAYER, "tolerance:", "epsilon:"), "NameError"),
    ),
    "longest_context": function(
        "longest_context(ram_gib, weights_bytes, bytes_per_token, max_positions)",
        weights_forgotten=(
            swap(CONTEXT, " - weights_bytes", ""),
            "gives 131,072; expected 74,075.",
            "the weights were forgotten",
        ),
        rounded_up=(swap(CONTEXT, "free // bytes_per_token", "-(-free // bytes_per_token)"), "rounded up"),
        rounded=(swap(CONTEXT, "free // bytes_per_token", "round(free / bytes_per_token)"), "to the nearest"),
        rounded_apart=(
            "rows = int(ram_gib * 2**30) // bytes_per_token - weights_bytes // bytes_per_token\n"
            "return max(0, min(rows, max_positions))",
            "were each rounded to tokens",
        ),
        not_whole=(swap(CONTEXT, "free //", "free /"), "gives 74,075.", "tokens come whole"),
        GB=(swap(CONTEXT, "2**30", "10**9"), "GB, not GiB"),
        MiB=(swap(CONTEXT, "2**30", "2**20"), "MiB, not GiB"),
        bytes_taken=(swap(CONTEXT, "ram_gib * 2**30", "ram_gib"), "multiply by 2**30"),
        no_limit=(
            "free = ram_gib * 2**30 - weights_bytes\nreturn max(0, free // bytes_per_token)",
            "for SmolLM2-135M in 8 GiB gives 361,150; expected 8,192",
            "max_positions is left out",
        ),
        no_limit_at_all=(
            "return (ram_gib * 2**30 - weights_bytes) // bytes_per_token",
            "max_positions is left out",
        ),
        below_0=(
            swap(
                CONTEXT,
                "max(0, min(free // bytes_per_token, max_positions))",
                "min(free // bytes_per_token, max_positions)",
            ),
            "for Llama-3.1-8B in 8 GiB gives -56,997; expected 0",
            "fewer than 0 tokens",
        ),
        the_larger=(swap(CONTEXT, "min(", "max("), "the larger of the two"),
        always_the_limit=("return max_positions", "max_positions whatever the RAM is"),
        bytes_left=(swap(CONTEXT, " // bytes_per_token", ""), "bytes, not tokens"),
        twice_the_rows=(swap(CONTEXT, "// bytes", "// 2 // bytes"), "not twice"),
        limit_less_one=(
            swap(CONTEXT, "max_positions))", "max_positions - 1))"),
            "gives 8,191; expected 8,192",
            "the limit is not one less",
        ),
        nothing_where_nothing_fits=(
            "free = ram_gib * 2**30 - weights_bytes\n"
            "return min(free // bytes_per_token, max_positions) if free > 0 else None",
            "for Llama-3.1-8B in 8 GiB gives None",
            "where the weights alone do not fit, give 0",
        ),
        weights_added=(swap(CONTEXT, "- weights", "+ weights"), "the weights were added"),
        hard_coded=("return 74075", "for Llama-3.1-8B in 16 GiB gives 74,075; expected 8,539"),
        one_less=(swap(CONTEXT, "bytes_per_token,", "bytes_per_token - 1,"),),
        text=("return '74,075'", "expected one number"),
        infinity=("return float('inf')", "gives inf"),
        raises=("return ram_gib // 0", "ZeroDivisionError"),
    ),
}
