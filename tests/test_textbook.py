"""The textbook formula, the walks built on it, and the `kv` command."""

from __future__ import annotations

import csv
import io
import json
import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given
from hypothesis import strategies as st

from kvbudget import textbook
from kvbudget.cli_textbook import kv
from kvbudget.errors import InputError
from kvbudget.textbook import Card, kv_bytes, kv_shape, room
from kvbudget.units import GIB, KIB

if TYPE_CHECKING:
    from collections.abc import Mapping

GB = 10**9
SEVEN_B = ("--layers", "32", "--hidden-size", "4096")
EIGHT_B = ("--layers", "32", "--num-key-value-heads", "8", "--head-dim", "128")
CARD_24 = ("--gpu-memory", "24GiB", "--weights", "16GiB", "--overhead", "2GiB")

layers = st.integers(1, 200)
widths = st.integers(1, 1 << 15)
contexts = st.integers(1, 1 << 21)
batches = st.integers(1, 1024)
value_bytes = st.sampled_from([4, 2, 1, 0.5, Fraction(1, 2)])


# -- the worked examples


@pytest.mark.parametrize(
    ("context", "batch", "gib"),
    [
        (4096, 1, 2),
        (4096, 8, 16),
        (32768, 1, 16),
        (32768, 8, 128),
        (131072, 1, 64),
        (131072, 8, 512),
    ],
)
def test_table_of_the_textbook(context: int, batch: int, gib: int) -> None:
    """A 7B in fp16 without sharing: 2, 16, 64 GiB, and eight times as much."""
    cells = {(cell.context, cell.batch): cell.kv_bytes for cell in textbook.kv_table(32, 4096, 2)}

    assert kv_bytes(32, 4096, context, batch, 2) == gib * GIB == cells[context, batch]
    assert len(cells) == 6


@pytest.mark.parametrize(
    ("seq", "dtype_bytes", "kv_groups", "gib"),
    [(4096, 2, 1, 2), (131072, 2, 1, 64), (131072, 2, 8, 8), (131072, 1, 8, 4), (32768, 2, 8, 2)],
)
def test_figures_of_the_exercise(seq: int, dtype_bytes: int, kv_groups: int, gib: int) -> None:
    """Each text file of the exercise, to the byte."""
    assert kv_bytes(32, 4096, seq, 1, dtype_bytes, kv_groups) == gib * GIB


def test_per_token() -> None:
    """Llama-3-8B keeps 128 KiB a token; with 32 KV heads it would be 512 KiB."""
    assert kv_bytes(32, 8 * 128, 1, 1, 2) == 131072 == 2 * 32 * 8 * 128 * 2
    assert kv_bytes(32, 32 * 128, 1, 1, 2) == 512 * KIB


@pytest.mark.parametrize(
    ("parameters", "bits", "size"),
    [
        (7 * GB, 16, 14 * GB),
        (7 * GB, 4, 35 * GB // 10),
        (70 * GB, 16, 140 * GB),
        (70 * GB, 4, 35 * GB),
        (8_030_261_248, 16, 16_060_522_496),
        (7 * GB, 4.5, 3_937_500_000),
        (3, 4, 2),
    ],
)
def test_weight_bytes(parameters: int, bits: float, size: int) -> None:
    """Parameters times bits over 8, rounded up to a whole byte."""
    assert textbook.weight_bytes(parameters, bits) == size


@pytest.mark.parametrize(("unit", "tokens", "at_4k", "at_8k"), [(GIB, 49_152, 12, 6), (GB, 45_776, 11, 5)])
def test_24_gb_card(unit: int, tokens: int, at_4k: int, at_8k: int) -> None:
    """16 + 2 of 24 leave 6: 49,152 tokens if they are GiB, 45,776 if they are GB."""
    card = Card(memory_bytes=24 * unit, weights_bytes=16 * unit, overhead_bytes=2 * unit)

    assert card.kv_share_bytes == 6 * unit
    assert room(card, bytes_per_token=128 * KIB, context=4096).tokens == tokens
    assert room(card, bytes_per_token=128 * KIB, context=4096).requests == at_4k
    assert room(card, bytes_per_token=128 * KIB, context=8192).requests == at_8k


def test_savings_stack() -> None:
    """1,280 GB becomes 320, 160 and 128 or 80; the 80 does not have the paging factor, with it it is 64."""
    stack = {step.name: step for step in textbook.savings_stack()}

    assert {name: step.size_bytes // GB for name, step in stack.items()} == {
        "FP16": 1280,
        "GQA": 320,
        "INT8": 160,
        "paging": 128,
        "INT4": 80,
        "INT4, paging": 64,
    }
    assert stack["INT4"].applied_to == stack["paging"].applied_to == "INT8"
    assert [str(step.factor) for step in stack.values()] == ["1", "1/4", "1/2", "4/5", "1/2", "4/5"]


def test_stack_with_the_other_gqa_8() -> None:
    """The exercise's GQA-8 divides by 8, the stack's by 4."""
    assert textbook.savings_stack(gqa_divisor=8)[1].size_bytes == 160 * GB


def test_contradictions() -> None:
    """All four are there, and their figures are those of the functions."""
    holds = {key: note.holds for key, note in textbook.CONTRADICTIONS.items()}

    assert list(holds) == ["heads", "units", "factors", "exceptions"]
    for unit in (GIB, GB):
        card = Card(memory_bytes=6 * unit, weights_bytes=0, overhead_bytes=0)
        assert f"{room(card, bytes_per_token=128 * KIB, context=1).tokens:,}" in holds["units"]
    for step in textbook.savings_stack():
        assert f"{step.size_bytes // GB:,}" in holds["factors"]


def test_paging_rounds_up_to_blocks() -> None:
    """A request of 1,000 tokens holds 1,008 in blocks of 16; whole blocks waste nothing."""
    card = Card(memory_bytes=24 * GIB, weights_bytes=16 * GIB, overhead_bytes=2 * GIB)
    paged = room(card, bytes_per_token=128 * KIB, context=1000, block_size=16)

    assert (paged.request_tokens, paged.requests) == (1008, 48)
    assert room(card, bytes_per_token=128 * KIB, context=4096, block_size=16).requests == 12


def test_scales() -> None:
    """A page of 16 tokens of Llama-3-8B's layer: 33,792 bytes in vLLM 0.32's int8_per_token_head."""
    scaled = textbook.scaled_dtype_bytes(8, values_per_scale=128, scale_bytes=4)

    assert kv_bytes(1, 1024, 16, 1, scaled) == 33_792
    assert kv_bytes(1, 1024, 16, 1, textbook.scaled_dtype_bytes(4, 128, 4)) == 17_408


@pytest.mark.parametrize(
    ("name", "size"),
    [("fp16", 2), ("BF16", 2), ("fp8_e4m3", 1), ("int8", 1), ("int4", Fraction(1, 2)), ("fp32", 4)],
)
def test_dtype_bytes(name: str, size: Fraction) -> None:
    assert textbook.dtype_bytes(name) == size


# -- laws


@given(layers, widths, contexts, batches, st.integers(1, 8))
def test_linear_in_context_and_batch(n: int, hidden: int, seq: int, batch: int, times: int) -> None:
    """Times the context, or times the batch, is times the cache."""
    one = kv_bytes(n, hidden, seq, batch, 2)

    assert kv_bytes(n, hidden, seq * times, batch, 2) == one * times
    assert kv_bytes(n, hidden, seq, batch * times, 2) == one * times
    assert kv_bytes(n * times, hidden, seq, batch, 2) == one * times


@given(layers, widths, contexts, batches, st.integers(1, 64))
def test_divisor_divides(n: int, width: int, seq: int, batch: int, groups: int) -> None:
    """The divisor divides the cache, whatever the rest; twice the divisor is half the cache."""
    assert kv_bytes(n, width * groups, seq, batch, 2, groups) == kv_bytes(n, width, seq, batch, 2)
    assert 2 * kv_bytes(n, width * groups * 2, seq, batch, 2, groups * 2) == kv_bytes(
        n, width * groups * 2, seq, batch, 2, groups
    )


@given(layers, widths, contexts, batches)
def test_dtypes_are_ratios(n: int, hidden: int, seq: int, batch: int) -> None:
    """8 bits are half of 16, 4 bits half of 8; 0.5 and 1/2 are the same."""
    sizes = [kv_bytes(n, hidden, seq, batch, size) for size in (2, 1, 0.5, Fraction(1, 2))]

    assert sizes[0] == 2 * sizes[1] == 4 * sizes[2]
    assert sizes[2] == sizes[3]


@given(layers, st.integers(1, 32), st.integers(1, 256), st.integers(1, 16), contexts, batches, value_bytes)
def test_both_spellings_agree(
    n: int, heads: int, head_dim: int, groups: int, seq: int, batch: int, size: float
) -> None:
    """Hidden size over divisor is KV heads times head dim, and the written factors multiply to the same."""
    hidden = heads * head_dim * groups
    by_heads = kv_shape(num_key_value_heads=heads, head_dim=head_dim)
    by_divisor = kv_shape(hidden_size=hidden, kv_groups=groups)
    by_all = kv_shape(hidden_size=hidden, kv_groups=groups, num_key_value_heads=heads, head_dim=head_dim)
    expected = kv_bytes(n, hidden, seq, batch, size, groups)

    assert by_heads.width == by_divisor.width == by_all.width
    assert (by_all.kv_groups, by_all.num_attention_heads) == (groups, heads * groups)
    assert kv_shape(hidden_size=hidden, kv_groups=groups, head_dim=head_dim).num_key_value_heads == heads
    assert kv_shape(hidden_size=hidden, num_key_value_heads=heads, head_dim=head_dim).kv_groups == groups
    for shape in (by_heads, by_divisor, by_all):
        assert kv_bytes(n, shape.width, seq, batch, size) == expected
        factors = textbook.kv_factors(shape, layers=n, seq=seq, batch=batch, dtype_bytes=size)
        over = textbook.OVER
        assert expected == math.prod(
            1 / Fraction(factor.value) if factor.sign == over else Fraction(factor.value) for factor in factors
        )
        savings = textbook.kv_savings(shape, layers=n, seq=seq, batch=batch, dtype_bytes=size)
        assert savings[-1].size_bytes == expected


@given(layers, widths, contexts, batches)
def test_monotone(n: int, hidden: int, seq: int, batch: int) -> None:
    """One more of anything is never less."""
    base = kv_bytes(n, hidden, seq, batch, 2)

    assert base < kv_bytes(n + 1, hidden, seq, batch, 2)
    assert base < kv_bytes(n, hidden + 1, seq, batch, 2)
    assert base < kv_bytes(n, hidden, seq + 1, batch, 2)
    assert base < kv_bytes(n, hidden, seq, batch + 1, 2)


sizes = st.integers(0, 1 << 40)


@given(st.integers(1, 1 << 40), sizes, sizes, st.integers(1, 1 << 20), contexts, st.integers(1, 256))
def test_room_is_honest(memory: int, weights: int, overhead: int, per_token: int, context: int, block: int) -> None:
    """The requests fit, one more does not; never below zero; blocks never make room."""
    card = Card(memory_bytes=memory, weights_bytes=weights, overhead_bytes=overhead)
    by_hand = room(card, bytes_per_token=per_token, context=context)
    paged = room(card, bytes_per_token=per_token, context=context, block_size=block)

    assert card.kv_share_bytes - card.short_bytes == memory - weights - overhead
    assert 0 <= by_hand.requests * by_hand.request_bytes <= card.kv_share_bytes
    assert (by_hand.requests + 1) * by_hand.request_bytes > card.kv_share_bytes
    assert 0 <= paged.requests <= by_hand.requests
    assert context <= paged.request_tokens < context + block
    assert paged.request_tokens % block == 0
    assert room(card, bytes_per_token=per_token, context=2 * context).requests == by_hand.requests // 2


@given(st.integers(1, 1 << 40), st.integers(1, 64))
def test_weights_round_up(parameters: int, bits: int) -> None:
    """Never less than the bits, never a whole byte more."""
    size = textbook.weight_bytes(parameters, bits)

    assert 0 <= size * 8 - parameters * bits < 8


# -- refusals

GOOD: Mapping[str, object] = {
    "layers": 32,
    "hidden": 4096,
    "seq": 4096,
    "batch": 1,
    "dtype_bytes": 2,
    "kv_groups": 8,
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "bad",
    [0, -1, True, False, None, "2", math.nan, math.inf, -math.inf, -0.5, [], 1 << 80, -(10**5000), 10**5000],
    ids=lambda bad: type(bad).__name__,
)
def test_every_figure_is_checked(name: str, bad: object) -> None:
    """No bad figure passes, and the message names the figure in one sentence."""
    with pytest.raises(InputError, match=rf"^{name} ") as caught:
        kv_bytes(**{**GOOD, name: bad})  # type: ignore[arg-type]

    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", [name for name in GOOD if name != "dtype_bytes"])
def test_counts_are_whole(name: str) -> None:
    """A count is not a float, not even a whole one."""
    with pytest.raises(InputError, match="whole number"):
        kv_bytes(**{**GOOD, name: 8.0})  # type: ignore[arg-type]


def test_divisor_must_divide() -> None:
    with pytest.raises(InputError, match="hidden 4096 cannot be divided by kv_groups 3"):
        kv_bytes(32, 4096, 1, 1, 2, 3)


def test_bytes_are_whole() -> None:
    """A third of a byte per value does not come to whole bytes."""
    with pytest.raises(InputError, match="whole number of bytes"):
        kv_bytes(1, 1, 1, 1, Fraction(1, 3))


def test_not_absurdly_large() -> None:
    with pytest.raises(InputError, match=r"more than 2\^60 bytes"):
        kv_bytes(1 << 30, 1 << 30, 1, 1, 2)


def test_integers_of_other_libraries_pass() -> None:
    """Whatever is an index is a whole number, such as an array library's integers."""

    class Int64:
        def __index__(self) -> int:
            return 32

    assert kv_bytes(Int64(), 4096, 4096, 1, 2) == 2 * GIB  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "No width was given"),
        ({"kv_groups": 8}, "No width was given"),
        ({"head_dim": 128}, "No width was given"),
        ({"num_key_value_heads": 8}, "give head_dim too"),
        ({"hidden_size": 4096, "kv_groups": 3}, "cannot be divided by kv_groups 3"),
        ({"hidden_size": 4096, "kv_groups": 8, "head_dim": 100}, "no multiple of head_dim 100"),
        ({"hidden_size": 5000, "num_key_value_heads": 8, "head_dim": 128}, "leave hidden_size out"),
        (
            {"hidden_size": 4096, "num_key_value_heads": 8, "head_dim": 128, "kv_groups": 8},
            "a divisor of 4, but kv_groups says 8",
        ),
        ({"hidden_size": 0}, "hidden_size is 0"),
    ],
)
def test_shapes_that_do_not_agree(said: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kv_shape(**said)


@pytest.mark.parametrize("memory", [0, -1, 1.5])
def test_card_is_checked(memory: int) -> None:
    with pytest.raises(InputError, match="memory_bytes"):
        Card(memory_bytes=memory, weights_bytes=0, overhead_bytes=0)


def test_unknown_dtype() -> None:
    with pytest.raises(InputError, match="dtype 'q4_K' has no fixed width"):
        textbook.dtype_bytes("q4_K")


# -- the command


def run(*args: str) -> Result:
    return CliRunner().invoke(kv, args, prog_name="kvbudget kv")


def said(*args: str) -> str:
    """Return what the command prints; it must end well."""
    result = run(*args)
    assert (result.exit_code, result.exception) == (0, None), result.output
    return result.stdout


def refusal(*args: str) -> str:
    """Return the message of the InputError with which the command ends."""
    error = run(*args).exception
    assert isinstance(error, InputError)
    return str(error)


def test_text_shows_the_formula() -> None:
    """Factor by factor, the bytes, GiB, and the KV heads and the divisor apart."""
    assert said(*SEVEN_B, "--seq-len", "128K", "--kv-groups", "8", "--head-dim", "128") == (
        "KV cache: 8.00 GiB (8,589,934,592 bytes)\n"
        "\n"
        "  2        keys and values\n"
        "× 32       layers\n"
        "× 4        KV heads\n"
        "× 128      values in a head (head dim)\n"
        "× 131,072  tokens in a request\n"
        "× 1        requests (batch)\n"
        "× 2        bytes in a value (fp16)\n"
        "\n"
        "per token  64 KiB\n"
        "KV heads   4, of 32 query heads\n"
        "divisor    8, the query heads that share one KV head\n"
        "\n"
        "saved from  64.00 GiB  16 bits, no sharing\n"
        "÷ 8          8.00 GiB  8 query heads share one KV head\n"
        "\n"
        "note: GQA-8 is said of 8 KV heads and of 8 query heads that share one KV head;\n"
        "  with 32 query heads the first divides by 4, the second by 8.\n"
        "assumed: values are fp16 (--dtype)\n"
    )


def test_both_spellings_print_the_same_bytes() -> None:
    by_divisor = json.loads(said(*SEVEN_B, "--kv-groups", "4", "--seq-len", "8K", "--json"))
    by_heads = json.loads(said(*EIGHT_B, "--seq-len", "8K", "--json"))

    assert by_divisor["bytes"] == by_heads["bytes"] == GIB
    assert (by_divisor["kv_groups"], by_divisor["num_key_value_heads"]) == (4, None)
    assert (by_heads["kv_groups"], by_heads["num_key_value_heads"]) == (None, 8)


def test_json_of_one_figure() -> None:
    answer = json.loads(said(*SEVEN_B, "--seq-len", "4K", "--dtype", "int4", "--json"))

    assert answer["schema"] == 1
    assert (answer["bytes"], answer["gib"], answer["dtype_bytes"]) == (GIB // 2, 0.5, 0.5)
    assert [factor["value"] for factor in answer["factors"]] == [2, 32, 4096, 4096, 1, 0.5]
    assert answer["savings"][-1]["bytes"] == GIB // 2


def test_csv_of_the_table_is_the_file_of_the_exercise() -> None:
    from kvbudget.lab import lab_files  # noqa: PLC0415 - one test needs it

    assert said(*SEVEN_B, "--table", "--csv") == lab_files()["kv_table.csv"]


def test_csv_of_one_figure_has_the_bytes() -> None:
    (row,) = csv.DictReader(io.StringIO(said(*SEVEN_B, "--seq-len", "4096", "--csv")))

    assert row == {"context": "4096", "batch": "1", "bytes": "2147483648", "gib": "2.00"}


def test_csv_has_no_thousands_separators() -> None:
    """A cache of more than 1,000 GiB is still one field."""
    rows = list(csv.reader(io.StringIO(said(*SEVEN_B, "--seq-len", "1M", "--batch", "4", "--csv"))))

    assert rows[1] == ["1048576", "4", "2199023255552", "2048.00"]


def test_markdown_table() -> None:
    assert said(*SEVEN_B, "--table", "--md").splitlines()[2:7] == [
        "| context | batch 1 | batch 8 |",
        "| --- | --- | --- |",
        "| 4,096 | 2.00 | 16.00 |",
        "| 32,768 | 16.00 | 128.00 |",
        "| 131,072 | 64.00 | 512.00 |",
    ]


def test_markdown_of_one_figure() -> None:
    text = said(*EIGHT_B, "--seq-len", "4K", "--dtype", "fp8", "--hidden-size", "4096", "--md", *CARD_24)

    assert text.startswith("**KV cache: 0.25 GiB (268,435,456 bytes)**  \nFITS: 24 requests")
    assert "| × 128 | values in a head (head dim) |" in text
    assert "| ÷ 2 | 0.25 GiB | 8 bits in place of 16 |" in text


def test_card_walk() -> None:
    """12 requests at 4K and 6 at 8K, alone and as a table."""
    assert "FITS: 12 requests of 4,096 tokens at once, 1 asked" in said(*EIGHT_B, "--seq-len", "4K", *CARD_24)
    table = json.loads(said(*EIGHT_B, "--seq-len", "4K,8K", "--json", *CARD_24))["table"]
    assert [cell["max_concurrent_requests"] for cell in table] == [12, 6]


def test_batch_that_does_not_fit_exits_with_1() -> None:
    result = run(*EIGHT_B, "--seq-len", "8K", "--batch", "7", *CARD_24)

    assert result.exit_code == 1
    assert "DOES NOT FIT: 6 requests of 8,192 tokens at once, 7 asked" in result.stdout


def test_weights_that_do_not_fit_are_never_negative() -> None:
    args = ("--layers", "80", "--num-key-value-heads", "8", "--head-dim", "128", "--seq-len", "8K")
    result = run(*args, "--gpu-memory", "80GiB", "--parameters", "70B")

    assert result.exit_code == 1
    assert "weights and overhead exceed the card by 58.39 GiB" in result.stdout
    answer = json.loads(run(*args, "--gpu-memory", "80GiB", "--parameters", "70B", "--json").stdout)
    assert answer["max_concurrent_requests"] == answer["gpu"]["kv_share_bytes"] == 0


def test_what_was_assumed_is_said() -> None:
    text = said(*SEVEN_B, "--seq-len", "4K", "--gpu-memory", "80GiB", "--parameters", "7B")

    assert [line for line in text.splitlines() if line.startswith("assumed: ")] == [
        "assumed: each query head has its own KV head (--kv-groups)",
        "assumed: values are fp16 (--dtype)",
        "assumed: a weight has 16 bits (--weight-bits)",
        "assumed: 10 % of the card goes to activations and fragmentation (--overhead)",
    ]


@pytest.mark.parametrize(
    ("args", "key"),
    [
        (("--kv-groups", "8"), "heads"),
        (("--gpu-memory", "24GB", "--weights", "16GiB"), "units"),
        (("--kv-groups", "8", "--dtype", "int8"), "factors"),
        (("--dtype", "int8"), "exceptions"),
        (("--seq-len", "1000", "--gpu-memory", "24GiB", "--weights", "16GiB"), "exceptions"),
    ],
)
def test_contradictions_are_stated_where_met(args: tuple[str, ...], key: str) -> None:
    """Each shows up with the input that meets it, and not without."""
    note = textbook.CONTRADICTIONS[key].holds

    assert note in json.loads(said(*SEVEN_B, "--seq-len", "4K", *args, "--json"))["notes"]
    assert not json.loads(said(*SEVEN_B, "--seq-len", "4K", "--json"))["notes"]


def test_how_a_figure_was_read_is_said() -> None:
    text = said(*SEVEN_B, "--seq-len", "32k", "--gpu-memory", "24GB", "--weights", "5GB", "--overhead", "1g")

    assert "32k is 32,000 tokens; write 32K if 32,768 is meant." in text
    assert "--gpu-memory 24GB is 22.35 GiB; write 24GiB if GiB is meant." in text
    assert "--overhead" not in text


def test_bits_in_place_of_bytes_are_remarked() -> None:
    assert "16 bytes is wide for a value; 16 bits are 2." in said(*SEVEN_B, "--seq-len", "4K", "--dtype-bytes", "16")


@pytest.mark.parametrize("extra", [(), ("--table",), ("--dtype", "int8", "--kv-groups", "8"), ("--help",)])
def test_text_fits_80_columns(extra: tuple[str, ...]) -> None:
    text = said(*SEVEN_B, "--seq-len", "100k", "--gpu-memory", "80GB", "--parameters", "7B", *extra)

    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((*SEVEN_B,), "--seq-len is missing"),
        (("--layers", "32", "--seq-len", "4K"), "No width was given"),
        ((*SEVEN_B, "--seq-len", "4K", "--kv-groups", "3"), "cannot be divided by kv_groups 3"),
        ((*SEVEN_B, "--seq-len", "4K", "--kv-groups", "0"), "kv_groups is 0"),
        ((*SEVEN_B, "--seq-len", "0"), "--seq-len '0' must be a positive whole number"),
        ((*SEVEN_B, "--seq-len", "four"), "--seq-len 'four' is not understood"),
        ((*SEVEN_B, "--seq-len", "4,096"), "write 4096"),
        ((*SEVEN_B, "--seq-len", "4K,"), "--seq-len '' is not understood"),
        ((*SEVEN_B, "--seq-len", "4K", "--batch", "-1"), "--batch '-1' is not understood"),
        ((*SEVEN_B, "--seq-len", "4K", "--dtype", "q4_K"), "dtype 'q4_K' has no fixed width"),
        (
            (*SEVEN_B, "--seq-len", "4K", "--dtype-bytes", "nan"),
            "--dtype-bytes 'nan' is not a positive number",
        ),
        ((*SEVEN_B, "--seq-len", "4K", "--dtype-bytes", "0.0"), "is not a positive number"),
        ((*SEVEN_B, "--seq-len", "4K", "--dtype-bytes", "1/0"), "is not a positive number"),
        ((*SEVEN_B, "--seq-len", "4K", "--dtype-bytes", "1e99999999"), "is not a positive number"),
        ((*SEVEN_B, "--seq-len", "4K", "--dtype", "fp16", "--dtype-bytes", "1"), "give one of them"),
        ((*SEVEN_B, "--seq-len", "4K", "--json", "--md"), "exclude each other"),
        ((*SEVEN_B, "--seq-len", "4K", "--weights", "4GiB"), "give --gpu-memory too"),
        ((*SEVEN_B, "--seq-len", "4K", "--weight-bits", "4"), "give --gpu-memory too"),
        ((*SEVEN_B, "--seq-len", "4K", "--gpu-memory", "8GiB"), "needs the weights"),
        (
            (*SEVEN_B, "--seq-len", "4K", "--gpu-memory", "8GiB", "--weights", "4GiB", "--parameters", "7B"),
            "said once",
        ),
        (
            (*SEVEN_B, "--seq-len", "4K", "--gpu-memory", "8GiB", "--weights", "4GiB", "--weight-bits", "4"),
            "give --parameters",
        ),
        ((*SEVEN_B, "--seq-len", "4K", "--gpu-memory", "lots", "--weights", "1g"), "--gpu-memory 'lots'"),
        (
            (*SEVEN_B, "--num-key-value-heads", "3", "--head-dim", "128", "--seq-len", "4K"),
            "leave hidden_size out",
        ),
    ],
)
def test_refusals(args: tuple[str, ...], message: str) -> None:
    """Bad input ends in one sentence, and nothing is printed."""
    assert message in refusal(*args)
    assert run(*args).stdout == ""


def test_the_scale_advised_is_accepted() -> None:
    """A head of 96 values makes 25/24 bytes, which no decimal says exactly."""
    args = ("--layers", "32", "--num-key-value-heads", "8", "--head-dim", "96", "--seq-len", "4K")

    assert "Write --dtype-bytes 25/24 if" in said(*args, "--dtype", "int8")
    expected = kv_bytes(32, 8 * 96, 4096, 1, Fraction(25, 24))
    assert json.loads(said(*args, "--dtype-bytes", "25/24", "--json"))["bytes"] == expected


def test_equal_dtype_and_bytes_pass() -> None:
    assert "2.00 GiB" in said(*SEVEN_B, "--seq-len", "4K", "--dtype", "bf16", "--dtype-bytes", "2.0")


@given(layers, st.integers(1, 64), st.integers(1, 256), contexts, batches)
def test_command_agrees_with_the_function(n: int, heads: int, head_dim: int, seq: int, batch: int) -> None:
    assume(n * heads * head_dim * seq * batch < 1 << 58)
    args = (
        "--layers",
        n,
        "--num-key-value-heads",
        heads,
        "--head-dim",
        head_dim,
        "--seq-len",
        seq,
        "--batch",
        batch,
    )

    assert json.loads(said(*map(str, args), "--json"))["bytes"] == kv_bytes(n, heads * head_dim, seq, batch, 2)
