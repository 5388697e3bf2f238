"""Wrong answers to the exercises, and words of what the reader is told.

Each is source that stands in place of the stub, after the notebook's own cells have run, and then the words.
Where there are none, no reason is known, and none may be made up.
"""

from __future__ import annotations

from textwrap import indent

Answers = dict[str, tuple[str, ...]]


def function(head: str, **bodies: tuple[str, ...]) -> Answers:
    """Return wrong answers that share a function's first line, by name: body and words."""
    return {
        name.replace("_", " "): (f"def {head}:\n{indent(body, '    ')}", *words)
        for name, (body, *words) in bodies.items()
    }


def swap(body: str, old: str, new: str) -> str:
    """Return a right body with one piece replaced."""
    assert body.count(old) == 1, f"{old!r} is not once in the right answer"
    return body.replace(old, new)


ATTEND = "return softmax(np.where(causal_mask(len(values)), scores, -np.inf)) @ values"
GENERATE = """\
words = list(prompt)
while len(words) < len(prompt) + max_new:
    word = VOCABULARY[greedy(step(words))]
    words.append(word)
    if word == EOS:
        break
return words[len(prompt) :]
"""
DECODE = """\
positions, mask = cache.positions(1), cache.mask(1)
q, k, v = make_qkv(positions, np.array([number]))
keys, values = cache.append(0, k, v)
cache.advance(1)
return attention(q, keys, values, mask)[0]
"""
KEPT = """\
kept = 0
while kept < min(len(old), len(new)) and old[kept] == new[kept]:
    kept += 1
return kept
"""


def table(**changes: object) -> str:
    """Return the right table with some rows replaced."""
    rows = {
        "weather": [20, 20, 10, 15],
        "is": [20, 1, 10, 10.33],
        "so": [12.5, 5, 10, 9],
        "Today": [0, 10, 10, 10],
    }
    return f"table = { {**rows, **changes} }".replace("Ellipsis", "...").replace("nan", "float('nan')")


WRONG: dict[str, Answers] = {
    "pick_even": {
        **function(
            "pick_even(visible)",
            counted_from_0=(
                "return sum(visible[::2]) / len(visible[::2])",
                "pick_even([10, 20, 1, 5]) gives 5.5; expected 12.5.",
                "counted from 0",
            ),
            divided_by_all=("return sum(visible[1::2]) / len(visible)", "divided by all visible tokens"),
            even_numbers=(
                "even = [n for n in visible if n % 2 == 0]\nreturn sum(even) / len(even) if even else 0",
                "even numbers were picked",
            ),
            added_up=("return sum(visible[1::2])", "added up"),
            nothing_raises=("return sum(visible[1::2]) / len(visible[1::2])", "nothing to divide by: give 0"),
            nothing_is_NaN=("return np.mean(visible[1::2])", "gives NaN", "nothing to divide by: give 0"),
            nothing_keeps_itself=(
                "even = visible[1::2] or visible\nreturn sum(even) / len(even)",
                "nothing to divide by: give 0",
            ),
            all_of_them=("return sum(visible) / len(visible)", "the head `all`"),
            pairs_skipped=("return sum(visible[2::2]) / max(1, len(visible[2::2]))", "counted from 0"),
            divided_by_2=("return sum(visible[1::2]) / 2", "that is not always 2, nor half"),
            divided_by_half=(
                "return sum(visible[1::2]) / (len(visible) / 2)",
                "that is not always 2, nor half",
            ),
            first_of_them=("return visible[1] if len(visible) > 1 else 0", "one of those that were picked"),
            last_of_them=("return ([0] + visible[1::2])[-1]", "one of those that were picked"),
            largest_of_them=("return max(visible[1::2], default=0)", "one of those that were picked"),
            positions=(
                "even = [n for n in range(1, len(visible) + 1) if n % 2 == 0]\n"
                "return sum(even) / len(even) if even else 0",
                "places were averaged",
            ),
            last_left_out=(
                "even = visible[1:-1:2]\nreturn sum(even) / len(even) if even else 0",
                "the last number is left out",
            ),
            fraction_cut_off=(
                "even = visible[1::2]\nreturn sum(even) // len(even) if even else 0",
                "the fraction is cut off",
            ),
            median=(
                "return np.median(visible[1::2]) if len(visible) > 1 else 0",
                "gives 5; expected 5.67",
                "that is the median",
            ),
            counted_from_the_end=(
                "even = visible[::-1][1::2]\nreturn sum(even) / len(even) if even else 0",
                "oldest first",
            ),
            places_by_index=(
                "even = [n for n in visible if visible.index(n) % 2]\n"
                "return sum(even) / len(even) if even else 0",
                "`index` finds the first",
            ),
            one_digit=(
                "even = visible[1::2]\nreturn round(sum(even) / len(even), 1) if even else 0",
                "gives 5.7; expected 5.67",
            ),
            a_tuple=("return sum(visible[1::2]) / 2,", "(12.5,) (tuple); expected one number"),
            hard_coded=("return 12.5",),
            hard_coded_four=("return {4: 12.5, 3: 20, 2: 20, 1: 0}[min(len(visible), 4)]",),
            hard_coded_places=("return (visible[1] + visible[3]) / 2", "IndexError"),
            text=("return '12.5'", "expected one number"),
            prints_only=("print(sum(visible[1::2]) / 2)", "reaches no `return`"),
            the_list=("return visible[1::2]", "expected one number"),
            writes_into_its_list=(
                "visible.append(0)\nreturn sum(visible[1:-1:2]) / max(1, len(visible[1:-1:2]))",
                "changes its first argument",
            ),
        ),
        "no function": ("pick_even = 12.5", "expected a function"),
    },
    "table": {
        "all at weather by the prompt's length": (
            table(weather=[20, 20, 10, 7.5]),
            "divided by the prompt's length",
        ),
        "all at is by the prompt's length": (
            table(**{"is": [20, 1, 10, 7.75]}),
            "divided by the prompt's length",
        ),
        "all at Today by the prompt's length": (
            table(Today=[0, 10, 10, 2.5]),
            "divided by the prompt's length",
        ),
        "even at Today": (table(Today=[12.5, 10, 10, 10]), "sees the future"),
        "even at weather": (table(weather=[12.5, 20, 10, 15]), "sees the future"),
        "even at is": (table(**{"is": [12.5, 1, 10, 10.33]}), "sees the future"),
        "newest at Today": (table(Today=[0, 5, 10, 10]), "sees the future"),
        "newest at weather": (table(weather=[20, 5, 10, 15]), "sees the future"),
        "all at is": (table(**{"is": [20, 1, 10, 9]}), "sees the future"),
        "even counted from 0": (table(so=[5.5, 5, 10, 9]), "counted from 0"),
        "even at Today is Today": (table(Today=[10, 10, 10, 10]), "does not pick `Today` itself"),
        "even added up": (table(so=[25, 5, 10, 9]), "added up"),
        "one of them alone": (table(so=[20, 5, 10, 9]), "averages all that it picks"),
        "even numbers": (table(so=[15, 5, 10, 9]), "even numbers were picked"),
        "newest at Today is 0": (table(Today=[0, 0, 10, 10]), "sees itself too"),
        "the newest position": (table(so=[12.5, 4, 10, 9]), "that is a position"),
        "the first position": (table(so=[12.5, 5, 1, 9]), "that is a position"),
        "rounded to a whole number": (table(so=[13, 5, 10, 9]), "rounded too far"),
        "rows mixed up": (
            table(**{"is": [12.5, 5, 10, 9], "so": [20, 1, 10, 10.33]}),
            "rows mixed up: that is the row of `so`",
        ),
        "newest is the one before": (table(so=[12.5, 1, 10, 9]), "sees itself too"),
        "newest is the largest": (table(so=[12.5, 20, 10, 9]), "not the largest number"),
        "rounded too far": (table(**{"is": [20, 1, 10, 10.3]}), "two digits"),
        "columns mixed up": (table(so=[9, 12.5, 5, 10]), "columns mixed up"),
        "NaN at Today": (table(Today=[float("nan"), 10, 10, 10]), "expected 0, as there is nothing to pick"),
        "None at Today": (table(Today=[None, 10, 10, 10]), "expected 0, as there is nothing to pick"),
        "unlisted": (table(so=[12.5, 5, 10, 11]),),
        "wrong before blank": (table(so=[5.5, ..., ..., ...]), "12 of 16 cells are right"),
        "a row too short": (table(so=[12.5, 5, 10]), "expected four numbers"),
        "a row is missing": ('table = {"weather": [20, 20, 10, 15]}', "the row `is` is missing"),
        "no table": ("table = [20, 20, 10, 15]", "expected a dict"),
    },
    "attend": function(
        "attend(scores, values)",
        multiplied_after_the_softmax=(
            "return (softmax(scores) * causal_mask(len(values))) @ values",
            "gives 2.5, 7.5, 7.75, 9; expected 10, 15, 10.33, 9.",
            "multiplied by the mask after the softmax",
        ),
        masked_scores_0=(
            swap(ATTEND, "-np.inf", "0"),
            "gives 9, 9, 9, 9; expected 10, 15, 10.33, 9.",
            "masked scores set to 0",
        ),
        scores_times_mask=(
            "return softmax(scores * causal_mask(len(values))) @ values",
            "masked scores set to 0",
        ),
        no_mask=("return softmax(scores) @ values", "no mask"),
        large_negative=(swap(ATTEND, "-np.inf", "-1e9"), "a large negative number"),
        large_negative_added=(
            "return softmax(scores - 1e9 * (~causal_mask(len(values)))) @ values",
            "gives 12.5, 20, 20, 12.5; expected 0, 20, 20, 12.5.",
            "a large negative number",
        ),
        large_negative_where=(swap(ATTEND, "-np.inf", "scores - 1e4"), "a large negative number"),
        small_negative=(swap(ATTEND, "-np.inf", "-1"), "masked scores set to -1"),
        mask_added=("return softmax(scores + causal_mask(len(values))) @ values", "the mask added to them"),
        one_ahead=(
            swap(ATTEND, "causal_mask(len(values))", "np.tri(len(values), k=1) == 1"),
            "sees the token after it",
        ),
        plus_infinity=(swap(ATTEND, "-np.inf", "np.inf"), "the score that gets no weight is -inf"),
        infinity_times_0=(
            "return softmax(scores - np.inf * (~causal_mask(len(values)))) @ values",
            "infinity times 0 is NaN",
        ),
        infinity_on_the_weights=(
            "return np.where(causal_mask(len(values)), softmax(scores), -np.inf) @ values",
            "-inf belongs on the scores",
        ),
        no_softmax=(swap(ATTEND, "softmax", ""), "no softmax"),
        scores_left_out=(swap(ATTEND, "scores", "0"), "the scores are left out"),
        branches_swapped=(
            swap(ATTEND, "scores, -np.inf", "-np.inf, scores"),
            "those scores are hidden",
        ),
        no_keepdims=(
            "e = np.exp(np.where(causal_mask(len(values)), scores, -np.inf))\n"
            "return e / e.sum(axis=-1) @ values",
            "keepdims=True",
        ),
        sum_of_the_table=(
            "e = np.exp(np.where(causal_mask(len(values)), scores, -np.inf))\nreturn e / e.sum() @ values",
            "the sum of the whole table",
        ),
        sum_down_the_columns=(
            "e = np.exp(np.where(causal_mask(len(values)), scores, -np.inf))\n"
            "return e / e.sum(axis=0) @ values",
            "down the columns",
        ),
        divided_by_T=(f"{ATTEND} / len(values)", "divided by T as well"),
        mask_of_the_prompt=(swap(ATTEND, "len(values)", "4"), "the mask has another size"),
        mask_of_the_scores=(swap(ATTEND, "len(values)", "scores"), "takes how many tokens there are"),
        nothing_in_row_1=(
            "return np.array([softmax(row[:t]) @ values[:t] for t, row in enumerate(scores)])",
            "row t sees t tokens",
        ),
        plain_softmax=(
            "e = np.exp(np.where(causal_mask(len(values)), scores, -np.inf))\n"
            "return e / e.sum(axis=-1, keepdims=True) @ values",
            "gives NaN, 20, 20, 12.5; expected 0, 20, 20, 12.5.",
            "nothing to pick in row 1",
        ),
        plain_softmax_with_peak=(
            "s = np.where(causal_mask(len(values)), scores, -np.inf)\n"
            "e = np.exp(s - s.max(axis=-1, keepdims=True))\n"
            "return e / e.sum(axis=-1, keepdims=True) @ values",
            "nothing to pick in row 1",
        ),
        not_divided=(swap(ATTEND, "softmax", "np.exp"), "not divided by the row's sum"),
        down_the_columns=(
            "s = np.where(causal_mask(len(values)), scores, -np.inf)\nreturn softmax(s.T).T @ values",
            "down the columns",
        ),
        values_first=(
            "return values @ softmax(np.where(causal_mask(len(values)), scores, -np.inf))",
            "values @ weights",
        ),
        hides_itself=(
            swap(ATTEND, "causal_mask(len(values))", "np.tri(len(values), k=-1) == 1"),
            "hides the token itself",
        ),
        upside_down=(swap(ATTEND, "(len(values))", "(len(values)).T"), "upside down"),
        weights_only=(swap(ATTEND, " @ values", ""), "shape (4, 4)", "weights @ values"),
        last_row_only=(f"{ATTEND.replace('return', 'return (')})[-1]", "each of the T rows gives one"),
        averages_without_scores=(
            "return np.cumsum(values) / np.arange(1, len(values) + 1)",
            "the scores are left out",
        ),
        hard_coded=("return np.array([10, 15, 31 / 3, 9])", "shape (4,); expected (3,)"),
        writes_into_the_scores=(
            "scores[~causal_mask(len(values))] = -np.inf\nreturn softmax(scores) @ values",
            "changes its first argument",
        ),
        raises=("return softmax(mask(scores)) @ values", "NameError"),
    ),
    "order_prefill": {
        "softmax before the mask": (
            "order = list('DBGEFA')",
            "sum to 0.25, 0.5, 0.75, 1; expected 1 each",
            "softmax before the mask",
        ),
        "readout of row 1": ("order = list('DGBECA')", "which row predicts?"),
        "both readouts": ("order = list('DGBECFA')", "which row predicts"),
        "no mask": ("order = list('DBEFA')", "no mask"),
        "mask after the contexts": ("order = list('DBEGFA')", "the mask came after the contexts"),
        "mask first": ("order = list('GDBEFA')", "line G needs `scores`"),
        "softmax first": ("order = list('BDGEFA')", "line B needs `scores`, and no line before it makes it"),
        "contexts too early": ("order = list('DEGBFA')", "line E needs `weights`"),
        "no word": ("order = list('DGBEF')", "none of them makes `word`"),
        "word before logits": ("order = list('DGBEAF')", "line A needs `logits`"),
        "a line twice": ("order = list('DGBBEFA')", "line B is there 2 times"),
        "an unknown letter": ("order = list('DGBEFX')", "no line 'X'"),
        "numbers": ("order = [4, 7, 2, 5, 6, 1]", "expected a list of letters"),
        "both mistakes": ("order = list('DBGECA')", "softmax before the mask"),
        "no mask and row 1": ("order = list('DBECA')", "no mask"),
        "mask at the end": ("order = list('DBEFAG')", "the mask came after the contexts"),
        "readout too early": ("order = list('DGBFEA')", "line F needs `contexts`"),
        "no scores": ("order = list('GBEFA')", "line G needs `scores`"),
        "no softmax": ("order = list('DGEFA')", "line E needs `weights`"),
        "no readout": ("order = list('DGBEA')", "line A needs `logits`"),
        "one text": ("order = ['DGBEFA']", "no line 'DGBEFA'"),
        "a set": ("order = {'D', 'G'}", "expected a list of letters"),
    },
    "change_future": function(
        "test_future(prefill)",
        always_True=("return True", "prefill is never called"),
        always_False=("return False", "returns False even for a table in which nothing ever changes"),
        one_run=("return bool(np.allclose(prefill([10, 20, 1, 5])[3], [12.5, 5, 10, 9]))", "called once"),
        always_True_after_two_runs=(
            "prefill([10, 20, 1, 5])\nprefill([10, 20, 1, 500])\nreturn True",
            "whatever",
        ),
        all_rows=(
            "return np.array_equal(prefill([10, 20, 1, 5]), prefill([10, 20, 1, 500]))",
            "the row of the changed number",
        ),
        last_row=(
            "return np.array_equal(prefill([10, 20, 1, 5])[-1], prefill([10, 20, 1, 9])[-1])",
            "the row of the",
        ),
        first_number=(
            "return np.array_equal(prefill([10, 20, 1, 5])[:3], prefill([99, 20, 1, 5])[:3])",
            "the row of the changed number, or one after it",
        ),
        swapped=(
            "return not np.array_equal(prefill([10, 20, 1, 5])[:3], prefill([10, 20, 1, 9])[:3])",
            "swapped",
        ),
        same_numbers=(
            "return np.array_equal(prefill([10, 20, 1, 5])[:3], prefill([10, 20, 1, 5])[:3])",
            "same numbers",
        ),
        row_1_only=(
            "return np.array_equal(prefill([10, 20, 1, 5])[0], prefill([10, 20, 1, 500])[0])",
            "not every earlier row",
        ),
        row_3_only=(
            "return np.array_equal(prefill([10, 20, 1, 5])[2], prefill([10, 20, 1, 500])[2])",
            "not every earlier row",
        ),
        rows_1_and_3=(
            "return np.array_equal(prefill([10, 20, 1, 5])[[0, 2]], prefill([10, 20, 1, 500])[[0, 2]])",
            "whose middle row sees all",
        ),
        all_only=(
            "return np.array_equal(prefill([10, 20, 1, 5])[:3, 3], prefill([10, 20, 1, 500])[:3, 3])",
            "not all four columns",
        ),
        newest_only=(
            "return np.array_equal(prefill([10, 20, 1, 5])[:3, 1], prefill([10, 20, 1, 500])[:3, 1])",
            "not all four columns",
        ),
        last_number_kept=(
            "return np.array_equal(prefill([10, 20, 1, 5])[:2], prefill([10, 20, 9, 5])[:2])",
            "number 4, the last, is never changed",
        ),
        two_swapped=(
            "a, b = prefill([10, 20, 1, 5]), prefill([10, 20, 5, 1])\nreturn bool(np.allclose(a[:2], b[:2]))",
            "whose `all` sees all",
            "numbers that swap places keep their average",
        ),
        two_swapped_over_one=(
            "a, b = prefill([10, 20, 1, 5]), prefill([10, 5, 1, 20])\nreturn bool(np.allclose(a[:1], b[:1]))",
            "earlier numbers change with number 4",
        ),
        three_columns=(
            "return np.array_equal(prefill([10, 20, 1, 5])[:3, :3], prefill([10, 20, 1, 500])[:3, :3])",
            "not all four columns",
        ),
        whether_something_changes=(
            "return not np.array_equal(prefill([10, 20, 1, 5]), prefill([10, 20, 1, 500]))",
            "it asks whether something changes",
        ),
        one_list_in_a_loop=(
            "numbers = [10, 20, 1, 5]\nfor t in (1, 2, 3):\n    changed = numbers\n    changed[t] = 500\n"
            "    if not np.array_equal(prefill(changed)[:t], prefill(numbers)[:t]):\n        return False\n"
            "return True",
            "same numbers both times",
        ),
        any_number=(
            "return bool((prefill([10, 20, 1, 5])[:3] == prefill([10, 20, 1, 500])[:3]).any())",
            "np.all, not np.any",
        ),
        known_numbers=(
            "right = [[0, 10, 10, 10], [20, 20, 10, 15], [20, 1, 10, 31 / 3]]\n"
            "return np.allclose(prefill([10, 20, 1, 5])[:3], right)",
            "held against known numbers",
        ),
        sums=(
            "return prefill([10, 20, 1, 5])[:3].sum() == prefill([10, 20, 1, 500])[:3].sum()",
            "sums or averages are compared",
        ),
        averages=(
            "a, b = prefill([10, 20, 1, 5])[:3], prefill([10, 20, 1, 500])[:3]\n"
            "return bool(np.isclose(a.mean(), b.mean()))",
            "sums or averages are compared",
        ),
        stops_after_one=(
            "for t in (1, 2, 3):\n    changed = [10, 20, 1, 5]\n    changed[t] = 500\n"
            "    return np.array_equal(prefill(changed)[:t], prefill([10, 20, 1, 5])[:t])",
            "number 4, the last, is never changed",
        ),
        lengths=(
            "return len(prefill([10, 20, 1, 5])) == len(prefill([10, 20, 1, 500]))",
            "nothing is compared",
        ),
        one_list_twice=(
            "numbers = [10, 20, 1, 5]\nchanged = numbers\nchanged[3] = 500\n"
            "return np.array_equal(prefill(numbers)[:3], prefill(changed)[:3])",
            "same numbers",
        ),
        True_alone=(
            "if np.array_equal(prefill([10, 20, 1, 5])[:3], prefill([10, 20, 1, 500])[:3]):\n    return True",
            "reaches no `return`",
        ),
        asserts_only=(
            "assert np.array_equal(prefill([10, 20, 1, 5])[:3], prefill([10, 20, 1, 9])[:3])",
            "reaches no `return`",
        ),
        returns_a_table=(
            "return prefill([10, 20, 1, 5])[:3] == prefill([10, 20, 1, 9])[:3]",
            "expected True or False",
        ),
    ),
    "generate": function(
        "generate(step, prompt, max_new)",
        runs_eos=(
            swap(GENERATE, "    if word == EOS:\n        break\n", ""),
            "on 4, 5, 6 words; expected 4, 5.",
            "`<eos>` was run",
        ),
        a_pass_too_many=(
            "words = list(prompt)\nlogits = step(words)\nfor _ in range(max_new):\n"
            "    words.append(VOCABULARY[greedy(logits)])\n    if words[-1] == EOS:\n        break\n"
            "    logits = step(words)\nreturn words[len(prompt) :]",
            "on 4, 5, 6, 7 words; expected 4, 5, 6.",
            "a pass too many: the logits of the last one were never read",
        ),
        a_pass_too_few=(swap(GENERATE, "+ max_new", "+ max_new - 1"), "a pass too few"),
        a_pass_thrown_away=(
            "step(list(prompt))\n" + GENERATE,
            "on 4, 4, 5 words",
            "a pass too many: the logits of one were never read",
        ),
        a_word_too_many=(swap(GENERATE, "+ max_new", "+ max_new + 1"), "a word too many"),
        newest_word_only=(
            swap(GENERATE, "step(words)", "step(words if words == prompt else words[-1:])"),
            "only the newest word",
        ),
        newest_word_always=(
            swap(GENERATE, "step(words)", "step(words[-1:])"),
            "returns <eos>; expected nice, <eos>",
            "only the newest word",
        ),
        begins_with_nothing=(
            "words = []\nwhile len(words) < max_new:\n    words.append(VOCABULARY[greedy(step(words))])\n"
            "return words",
            "hands step no words",
            "begin with list(prompt)",
        ),
        counts_the_prompt=(
            swap(GENERATE, "len(words) < len(prompt) + max_new", "len(words) < max_new"),
            "never calls step",
            "max_new counts the new words",
        ),
        another_prompt=(
            swap(GENERATE, "list(prompt)", "list(toy.PROMPT)"),
            "another was run",
        ),
        letters=(swap(GENERATE, "words.append(word)", "words += word"), "letter by letter"),
        stops_after_one=(
            swap(GENERATE, "    if word == EOS:\n        break", "    break"),
            "it stops after one word",
        ),
        a_fixed_number=(swap(GENERATE, "+ max_new", "+ 8"), "max_new is an argument"),
        one_call=(
            swap(GENERATE, "step(words)", "logits").replace("while", "logits = step(words)\nwhile"),
            "step is called once",
        ),
        last_ones=(
            swap(GENERATE, "words[len(prompt) :]", "words[-max_new:]"),
            "by another length than its own",
        ),
        a_word_cut_off=(swap(GENERATE, "[len(prompt) :]", "[len(prompt) + 1 :]"), "by another length"),
        break_counts_the_prompt=(
            swap(GENERATE, "word == EOS", "word == EOS or len(words) > max_new"),
            "max_new counts the new words alone",
        ),
        in_front=(
            "new = []\nwhile len(new) < max_new:\n    new.append(VOCABULARY[greedy(step(new + prompt))])\n"
            "    if new[-1] == EOS:\n        break\nreturn new",
            "the prompt does not come first",
        ),
        last_row_of_the_row=(swap(GENERATE, "step(words)", "step(words)[-1]"), "one row already"),
        compares_a_number=(
            swap(GENERATE, "word == EOS", "VOCABULARY.index(word) == EOS"),
            "`<eos>` was run",
        ),
        never_appended=(swap(GENERATE, "step(words)", "step(list(prompt))"), "not put behind the others"),
        returns_the_prompt=(swap(GENERATE, "[len(prompt) :]", ""), "the prompt is returned too"),
        leaves_eos_out=(
            swap(GENERATE, "    words.append(word)\n", "")
            .rstrip()
            .replace("        break\n", "        break\n    words.append(word)\n"),
            "it counts as emitted",
        ),
        never_stops=(
            "words = list(prompt)\nwhile True:\n    words.append('nice')\n    step(words)",
            "over 50 times",
            "nothing stops the loop",
        ),
        hard_coded=("return ['nice', '<eos>'][:max_new]", "never calls step"),
        appends_to_the_prompt=(
            "new = []\nwhile len(new) < max_new:\n    new.append(VOCABULARY[greedy(step(prompt))])\n"
            "    if new[-1] == EOS:\n        break\n    prompt.append(new[-1])\nreturn new",
            "changes its second argument",
        ),
        indices=(
            swap(
                GENERATE,
                "return words[len(prompt) :]",
                "return [VOCABULARY.index(w) for w in words[len(prompt) :]]",
            ),
            "look the words up in VOCABULARY",
        ),
        indices_to_step=(
            swap(GENERATE, "VOCABULARY[greedy(step(words))]", "greedy(step(words))"),
            "expected the list of all words so far",
        ),
        text_to_step=(
            swap(GENERATE, "step(words)", "step(' '.join(words))"),
            "expected the list of all words so far",
        ),
        one_text=(
            swap(GENERATE, "words[len(prompt) :]", "' '.join(words[len(prompt) :])"),
            "expected a list of words",
        ),
        smallest_logit=(swap(GENERATE, "step(words)", "-step(words)"),),
        raises=("return step(prompt)[max_new + 9]", "IndexError"),
    ),
    "count_work": {
        "prefill emits nothing": ("positions, pairs = 72, 354", "prefill emits a word too"),
        "only positions are wrong": (
            "positions, pairs = 72, 276",
            "`positions` is 72",
            "`pairs`, 276, is right",
        ),
        "masked products": (
            "positions, pairs = 60, 492",
            "masked products were counted",
            "`positions`, 60, is right",
        ),
        "with a cache": (
            "positions, pairs = 11, 66",
            "reason: that is the cost with a cache",
        ),
        "no prefill": ("positions, pairs = 56, 266", "the prefill is left out"),
        "seven passes": ("positions, pairs = 49, 210", "8 words take 8 passes, the prefill among them"),
        "passes": ("positions, pairs = 8, 276", "the number of passes"),
        "prompt only": ("positions, pairs = 32, 276", "with the prompt alone"),
        "full length": ("positions, pairs = 88, 276", "at the full length"),
        "positions as pairs": ("positions, pairs = 60, 60", "those are the positions"),
        "passes over 5 to 12": ("positions, pairs = 68, 344", "the passes run 4 to 11 tokens"),
        "prompt word by word": ("positions, pairs = 66, 286", "the prompt goes in at once"),
        "new words alone": ("positions, pairs = 36, 120", "the prompt is left out"),
        "prompt only, both": ("positions, pairs = 32, 80", "reason: every pass was counted with the prompt"),
        "full length, both": ("positions, pairs = 88, 528", "reason: every pass was counted at the full"),
        "length of 12": ("positions, pairs = 96, 624", "reason: every pass was counted at the full"),
        "all heads": ("positions, pairs = 240, 1104", "once, for all heads", "the pairs of all four heads"),
        "without itself": ("positions, pairs = 60, 216", "a query sees itself too"),
        "not halved": ("positions, pairs = 60, 552", "twice too many"),
        "swapped": ("positions, pairs = 276, 60", "those are the pairs", "those are the positions"),
        "unlisted": ("positions, pairs = 61, 277",),
        "text": ("positions, pairs = '60', 276", "`positions` is '60' (str); expected a number"),
        "half filled and wrong": ("positions, pairs = 72, ...", "prefill emits a word too"),
    },
    "decode_step": function(
        "decode_step(cache, number)",
        attended_before_appending=(
            "q, k, v = make_qkv(cache.positions(1), np.array([number]))\n"
            "contexts = attention(q, cache.k[0], cache.v[0], np.ones((1, cache.length), dtype=bool))[0]\n"
            "cache.append(0, k, v)\ncache.advance(1)\nreturn contexts",
            "gives 12.5, 5, 10, 9; expected 12.5, 14, 10, 10.",
            "attended before appending",
        ),
        position_restarted_at_1=(
            swap(DECODE, "qkv(positions", "qkv(np.array([1])"),
            "gives 12.5, 5, 12, 10; expected 12.5, 14, 10, 10.",
            "position restarted at 1",
        ),
        position_restarted_at_0=(
            swap(DECODE, "qkv(positions", "qkv(np.array([0])"),
            "position restarted at 0",
        ),
        position_of_the_last_row=(
            swap(DECODE, "qkv(positions", "qkv(positions - 1"),
            "the position of the last stored token",
        ),
        position_too_far=(swap(DECODE, "qkv(positions", "qkv(positions + 1"), "a position too far"),
        own_row_alone=(
            swap(DECODE, "attention(q, keys, values, mask)", "attention(q, k, v, mask[:, :1])"),
            "its own row alone",
        ),
        no_advance=(
            swap(DECODE, "cache.advance(1)\n", ""),
            "cache.length is 4; expected 5",
            "no cache.advance(1)",
        ),
        advanced_twice=(swap(DECODE, "advance(1)", "advance(2)"), "advanced twice"),
        advanced_first=(
            "cache.advance(1)\n" + swap(DECODE, "cache.advance(1)\n", ""),
            "before cache.advance",
        ),
        mask_after_advance=(
            swap(DECODE, "values, mask)", "values, cache.mask(1))"),
            "before cache.advance",
        ),
        advanced_without_append=(
            swap(DECODE, "cache.append(0, k, v)", "np.vstack([cache.k[0], k]), np.append(cache.v[0], v)"),
            "cache.length is 5, K has 4 rows and V has 4; expected 5 of each",
        ),
        everything_again=(
            "numbers = np.append(cache.v[0], number)\nn = len(numbers)\n"
            "cache.append(0, *make_qkv(cache.positions(n) - n + 1, numbers)[1:])\ncache.advance(n)\n"
            "return attention(*make_qkv(np.arange(1, n + 1), numbers), np.tri(n, dtype=bool))[-1]",
            "old tokens were run again",
        ),
        everything_again_by_run_pass=(
            "return toy.run_pass([*cache.v[0], number])[-1]",
            "cache.length is 4; expected 5",
            "the new row is not in the cache",
        ),
        everything_again_after_reset=(
            "old = [*cache.v[0]]\ncache.reset()\nreturn toy.run_pass([*old, number], cache)[-1]",
            "appends 5 rows; expected 1",
            "old tokens were run again",
        ),
        everything_again_one_by_one=(
            "old = [*cache.v[0]]\ncache.truncate(0)\nfor one in [*old, number]:\n"
            "    contexts = toy.decode_step(cache, one)\nreturn contexts",
            "appends 5 rows; expected 1",
            "old tokens were run again",
        ),
        contexts_from_the_numbers=(
            swap(DECODE, "attention(q, keys, values, mask)[0]", "toy.prefill_matrix(values)[-1]"),
            "whose marks for even positions are swapped",
            "its keys are not read: old tokens were run again",
        ),
        appended_twice=(
            "cache.advance(0)\n" + DECODE.replace("cache.adv", "cache.append(0, k, v)\ncache.adv"),
            "appended twice",
        ),
        advanced_before_appending=(
            "positions, mask = cache.positions(1), cache.mask(1)\ncache.advance(1)\n"
            "q, k, v = make_qkv(positions, np.array([number]))\nkeys, values = cache.append(0, k, v)\n"
            "return attention(q, keys, values, mask)[0]",
            "advances before the row is appended",
        ),
        advanced_by_all=(
            swap(DECODE, "advance(1)", "advance(len(values))"),
            "cache.length is 9; expected 5",
            "by more than the 1 token that is new",
        ),
        own_row_under_a_long_mask=(
            swap(DECODE, "q, keys, values, mask", "q, k, v, mask"),
            "the keys and values that append returns",
        ),
        written_by_hand=(
            swap(
                swap(DECODE, "keys, values = cache.append(0, k, v)", "cache.v[0] = np.append(cache.v[0], v)"),
                "cache.advance(1)\nreturn attention(q, keys, values, mask)[0]",
                "cache.k[0] = np.vstack([cache.k[0], k])\n"
                "return attention(q, cache.k[0], cache.v[0], mask)[0]",
            ),
            "no cache.advance(1)",
        ),
        a_cache_of_its_own=("cache = toy.KVCache()\n" + DECODE, "the stored rows are gone"),
        mask_upside_down=(swap(DECODE, "values, mask", "values, ~mask"), "the mask hides every row"),
        mask_top_left=(
            swap(DECODE, "values, mask", "values, np.tri(1, len(values), dtype=bool)"),
            "sees row 1 alone",
        ),
        mask_of_two=(swap(DECODE, "cache.mask(1)", "cache.mask(2)"), "the mask is (1, S)"),
        mask_of_fixed_size=(
            swap(DECODE, "cache.mask(1)", "np.ones((1, 5), dtype=bool)"),
            "the mask is (1, S)",
        ),
        keys_and_values_swapped=(swap(DECODE, "q, k, v =", "q, v, k ="), "queries, keys and values, in this"),
        rows_swapped=(
            swap(DECODE, "keys, values, mask", "values, keys, mask"),
            "and the mask, in this order",
        ),
        position_is_no_array=(swap(DECODE, "cache.positions(1)", "cache.length + 1"), "the position too"),
        positions_of_all=(
            swap(DECODE, "cache.positions(1)", "np.arange(1, cache.length + 2)"),
            "one number has one position",
        ),
        layer_1=(swap(DECODE, "append(0", "append(1"), "counts layers from 0"),
        number_in_a_list=(swap(DECODE, "np.array([number])", "[number]"), "np.array([number])"),
        one_head=(swap(DECODE, "mask)[0]", "mask)[:, 0]"), "one head's context"),
        logits=(swap(DECODE, "return attention", "return toy.READOUT @ attention"), "those are the logits"),
        table_of_one_row=(swap(DECODE, "mask)[0]", "mask)"), "shape (1, 4)", "contexts[0]"),
        number_is_no_array=(swap(DECODE, "np.array([number])", "number"), "np.array([number])"),
        array_of_no_dimension=(swap(DECODE, "np.array([number])", "np.array(number)"), "np.array([number])"),
        hard_coded=(swap(DECODE, "attention(q, keys, values, mask)[0]", "np.array([12.5, 14, 10, 10])"),),
        wrong_key_stored=(
            swap(DECODE, "return attention", "contexts = attention") + "cache.k[0][-1] = 0\nreturn contexts",
            "last K row is 0, 0; expected 0, 5",
        ),
    ),
    "stale": function(
        "stale(layer, j, n)",
        own_row_only=("return [j]", "depend on their own token only in layer 1"),
        own_row_in_layer_3=(
            "return list(range(j, n + 1)) if layer == 2 else [j]",
            "depend on their own token only in layer 1",
        ),
        all_rows_behind=("return list(range(j, n + 1))", "in layer 1 a row is made from its own token alone"),
        layers_from_0=(
            "return [j] if layer == 0 else list(range(j, n + 1))",
            "layers count from 1",
        ),
        rows_before=("return [j] if layer == 1 else list(range(1, n + 1))", "rows before the change"),
        rows_up_to_it=("return [j] if layer == 1 else list(range(1, j + 1))", "rows before the change"),
        all_rows=("return list(range(1, n + 1))", "rows before the change"),
        counted_from_0=("return [j - 1] if layer == 1 else list(range(j - 1, n))", "counted from 0"),
        last_row_left_out=("return [j] if layer == 1 else list(range(j, n))", "row n is left out"),
        own_row_left_out=("return [j] if layer == 1 else list(range(j + 1, n + 1))", "row j is left out"),
        one_row_a_layer=("return list(range(j, min(n, j + layer - 1) + 1))", "to all rows behind it"),
        one_row_a_layer_without_end=("return list(range(j, j + layer))", "to all rows behind it"),
        own_row_in_layer_2=(
            "return [j] if layer <= 2 else list(range(j, n + 1))",
            "depend on their own token only in layer 1",
        ),
        nothing_in_layer_1=("return [] if layer == 1 else list(range(j, n + 1))", "row j changes in layer 1"),
        nothing=("return []", "row j changes in layer 1"),
        layers_swapped=("return list(range(j, n + 1)) if layer == 1 else [j]", "the other way round"),
        a_row_too_many=("return [j] if layer == 1 else list(range(j, n + 2))", "no row n + 1"),
        a_row_too_early=("return [j] if layer == 1 else list(range(j - 1, n))", "counted from 0"),
        flags=(
            "return [row == j if layer == 1 else row >= j for row in range(1, n + 1)]",
            "list the numbers of the rows",
        ),
        flags_in_an_array=("return np.arange(1, n + 1) >= j", "list the numbers of the rows"),
        both_ends=("return [j] if layer == 1 else [j, n]",),
        nothing_deeper=("if layer == 1:\n    return [j]", "reaches no `return`"),
        hard_coded=("return [2] if layer == 1 else [2, 3, 4, 5]",),
        a_number=("return j if layer == 1 else list(range(j, n + 1))", "expected a list of row numbers"),
        raises=("return list(range(j, N))", "NameError"),
    ),
    "reuse_rows": {
        name: (f"even_at_so = 5.5\n{written}", *words)
        for name, (written, *words) in function(
            "reusable(old, new)",
            common_words=("return len(set(old) & set(new))", "common words were counted"),
            common_words_in_order=(
                "return sum(word in new for word in old)",
                "only a common prefix is reusable",
            ),
            same_places=("return sum(a == b for a, b in zip(old, new))", "words after the first difference"),
            common_end=(
                swap(KEPT, "old[kept] == new[kept]", "old[-1 - kept] == new[-1 - kept]"),
                "the common end",
            ),
            longest_stretch=(
                "found = lambda run: any(old[i : i + len(run)] == run for i in range(len(old)))\n"
                "runs = [new[i:j] for i in range(len(new)) for j in range(i, len(new) + 1)]\n"
                "return max((len(run) for run in runs if found(run)), default=0)",
                "the longest common stretch",
            ),
            all_or_nothing=("return len(old) if new[:len(old)] == old else 0", "all or nothing"),
            everything=("return len(old)", "every row was kept"),
            the_shorter=("return min(len(old), len(new))", "every row was kept"),
            to_run=(swap(KEPT, "return kept", "return len(new) - kept"), "how many have to be run"),
            too_many=(swap(KEPT, "return kept", "return kept + 1"), "one too many"),
            too_few=(swap(KEPT, "return kept", "return max(kept - 1, 0)"), "one too few"),
            end_of_the_shorter=(
                swap(KEPT, "kept < min(len(old), len(new)) and ", ""),
                "one list may be shorter",
            ),
            nothing=("return 0", "no row was kept"),
            first_token=("return len(old) if new[:1] == old[:1] else 0", "only the first token is compared"),
            nothing_where_all_is_common=(
                "for n, (a, b) in enumerate(zip(old, new)):\n    if a != b:\n        return n\nreturn 0",
                "the whole of the shorter list is common",
            ),
            all_old_where_all_is_common=(
                "return next((n for n, (a, b) in enumerate(zip(old, new)) if a != b), len(old))",
                "the whole of the shorter list is common",
            ),
            minus_1_where_all_is_common=(
                "return next((n for n, (a, b) in enumerate(zip(old, new)) if a != b), -1)",
                "the whole of the shorter list is common",
            ),
            up_to_the_first_unknown=(
                "for n, word in enumerate(old):\n    if word not in new:\n        return n\nreturn len(old)",
                "common words were counted",
            ),
            the_one_that_differs=(
                swap(KEPT, "return kept", "return min(kept + 1, len(old), len(new))"),
                "one too many",
            ),
            last_for_its_logits=(
                swap(KEPT, "return kept", "return max(min(kept, len(new) - 1), 0)"),
                "has to run again for its logits is another matter",
            ),
            both_layers=(swap(KEPT, "return kept", "return 2 * kept"), "a row counts once"),
            dropped=(swap(KEPT, "return kept", "return len(old) - kept"), "how many are dropped"),
            letters=(
                "a, b = ' '.join(old), ' '.join(new)\nkept = 0\n"
                "while a[: kept + 1] == b[: kept + 1] and kept < min(len(a), len(b)):\n    kept += 1\n"
                "return len(a[:kept].split())",
                "so nice → so nicer gives 2; expected 1",
                "letters are compared, not tokens",
            ),
            text_all_or_nothing=(
                "return len(old) if ' '.join(new).startswith(' '.join(old)) else 0",
                "all or nothing",
            ),
            a_rest_without_return=(
                "for n, (a, b) in enumerate(zip(old, new)):\n    if a != b:\n        return n",
                "gives None",
            ),
            the_rows=("return [a for a, b in zip(old, new) if a == b]", "expected one number"),
            hard_coded=("return 0 if new[0] == 'Oslo' else 4",),
        ).items()
    }
    | {
        "old rows reused": (
            "even_at_so = 12.5",
            "even_at_so is 12.5",
            "the old rows were reused, but every position moved",
            "only a prefix is reusable",
        ),
        "counted from 0 or added up": ("even_at_so = 11", "counted from 0", "added up"),
        "all": ("even_at_so = 44 / 5", "that is the head `all`"),
        "divided by all": ("even_at_so = 11 / 5", "divided by all tokens"),
        "even numbers": ("even_at_so = 38 / 3", "even numbers were picked"),
        "one of them": ("even_at_so = 10", "one of them"),
        "unlisted": ("even_at_so = 7",),
        "text": ("even_at_so = '5.5'", "expected a number"),
    },
    "mask": function(
        "mask(T, S)",
        top_left=(
            "return np.tril(np.ones((T, S), dtype=bool))",
            "mask(2, 6) lets query 1 of 2 see key 1; expected keys 1 to 5.",
            "aligned top-left",
        ),
        no_mask=(
            "return np.ones((T, S), dtype=bool)",
            "lets query 1 of 2 see keys 1 to 6; expected keys 1 to 5.",
            "no mask",
        ),
        upside_down=("return ~np.tri(T, S, S - T, dtype=bool)", "upside down"),
        upside_down_top_left=("return np.triu(np.ones((T, S), dtype=bool), 1)", "upside down"),
        mirrored=("return np.triu(np.ones((T, S), dtype=bool), S - T)", "mirrored"),
        not_itself=("return np.tri(T, S, S - T - 1, dtype=bool)", "a query sees itself too"),
        one_ahead=("return np.tri(T, S, S - T + 1, dtype=bool)", "does not see the token after it"),
        stored_hidden=(
            "m = np.zeros((T, S), dtype=bool)\nm[:, S - T :] = np.tri(T)\nreturn m",
            "the stored tokens are hidden",
        ),
        itself_alone=("return np.eye(T, S, S - T, dtype=bool)", "itself alone"),
        transposed=("return np.tri(T, S, S - T, dtype=bool).T", "transposed"),
        square=("return np.tri(S, dtype=bool)", "has shape (6, 6); expected (2, 6)"),
        numbers=("return np.tri(T, S, S - T)", "expected True and False"),
        scores=("return np.where(np.tri(T, S, S - T, dtype=bool), 0, -np.inf)", "expected True and False"),
        objects=(
            "m = np.empty((T, S), dtype=object)\nm[:] = np.tri(T, S, S - T) > 0\nreturn m",
            "has dtype object; expected bool",
            "dtype=bool",
        ),
        texts=("return np.where(np.tri(T, S, S - T), 'True', 'False')", "expected bool, True and False"),
        top_left_but_for_one=(
            "return np.tri(T, S, dtype=bool) if T > 1 else np.ones((1, S), dtype=bool)",
            "aligned top-left",
        ),
        stored_alone=("return np.arange(S) < np.full((T, 1), S - T)", "see the stored ones only"),
        stored_and_itself=(
            "return (np.arange(S) < S - T) | np.eye(T, S, S - T, dtype=bool)",
            "see the stored ones only",
        ),
        new_columns_first=(
            "return np.hstack([np.tri(T, dtype=bool), np.ones((T, S - T), dtype=bool)])",
            "they are the last T",
        ),
        sign_of_the_shift=("return np.tri(T, S, T - S, dtype=bool)", "so np.tri shifts it by S - T"),
        shift_by_T=("return np.tri(T, S, T, dtype=bool)", "so np.tri shifts it by S - T"),
        no_column=(
            "return np.arange(1, S + 1) <= np.arange(S - T + 1, S + 1)",
            "make a column of the queries",
        ),
        one_row=("return np.arange(1, S + 1) <= S - T + 1", "each of the T queries has one"),
        new_columns_only=("return np.tri(T, dtype=bool)", "the stored tokens have columns too"),
        keys_as_rows=("return np.tri(S, T, T - S, dtype=bool)", "rows are queries, columns are keys"),
        nothing_visible=("return np.zeros((T, S), dtype=bool)",),
        hard_coded=(
            "return np.array([[True] * 5 + [False], [True] * 6])",
            "has shape (2, 6); expected (1, 5)",
        ),
        raises=("return np.tri(T, S, S - t)", "NameError"),
    ),
}
