"""The page: one static file that stands alone, for every eye and every width."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.deployment import Deployment
from kvbudget.grid import Sheet, sheet, steps_between
from kvbudget.hub import load_model
from kvbudget.model import Model
from kvbudget.present import html

if TYPE_CHECKING:
    from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

HOSTILE = "\"><script src='https://e.example/x.js'></script>&amp;\x1b[31m\u202e</title><img src=x onerror=alert(1)>"


def small_model(name: str = "tiny") -> Model:
    """Return a small dense model of any name."""
    config = {
        "model_type": "llama",
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    return Model.from_config(config, name=name)


def drawn(
    model: Model,
    *,
    contexts: tuple[int, ...] = (4096, 8192),
    with_gpu: bool = True,
    **axes: Any,  # noqa: ANN401 - any choice
) -> Sheet:
    """Return a sheet with its curve."""
    return sheet(
        Deployment(model=model, gpu="H100-SXM-80GB", allow_long=True),
        batches=(1, 8),
        with_gpu=with_gpu,
        curve_contexts=steps_between(1024, max(contexts)),
        **axes,
        max_model_len=contexts,
    )


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Return the pages that people make: cards, layouts, KV alone, a refused layout, much."""
    llama, experts = load_model("llama-3.1-8b"), load_model("qwen3-30b-a3b")
    return {
        "cards": html.sheet_page(drawn(llama, contexts=(4096, 32768, 131072), gpu=("L4", "H100"))),
        "kv": html.sheet_page(drawn(llama, with_gpu=False, kv_cache_dtype=("auto", "fp8"))),
        "windows": html.sheet_page(drawn(load_model("gpt-oss-20b"), gpu=("L4",))),
        "layouts": html.sheet_page(
            drawn(experts, gpu=("L40S", "H200"), tensor_parallel_size=(1, 3, 4), kv_cache_dtype=("auto", "fp8"))
        ),
        "much": html.sheet_page(
            drawn(
                llama,
                contexts=tuple(range(1024, 41 * 1024, 1024)),
                gpu=("L4", "A10", "L40S", "A100-SXM-80GB", "H100", "H200", "B200"),
                tensor_parallel_size=(1, 2, 4, 8),
                kv_cache_dtype=("auto", "fp8"),
            )
        ),
        "hostile": html.sheet_page(drawn(small_model(HOSTILE), gpu=("H100",))),
    }


PAGES = ("cards", "kv", "windows", "layouts", "much", "hostile")


@pytest.mark.parametrize("name", PAGES)
def test_it_stands_alone(pages: dict[str, str], name: str) -> None:
    """No script, no other host, nothing that is loaded, and never more than 60 KB."""
    page = pages[name]
    assert len(page.encode()) < 60_000
    for forbidden in ("<script", "javascript:", "<link", "<iframe", "<object", "<embed", "@import", "url(", "<img"):
        assert forbidden not in page.lower()
    tags = " ".join(re.findall(r"<[^>]*>", page))
    assert re.search(r"\b(src|href|action|poster|data)\s*=", tags) is None
    assert re.search(r"\bhttps?://", tags + html._CSS) is None
    assert re.search(r"\son[a-z]+\s*=", tags) is None
    assert "default-src 'none'" in page


@pytest.mark.parametrize("name", PAGES)
def test_pictures_are_well_formed_and_described(pages: dict[str, str], name: str) -> None:
    """Each SVG parses as XML and has a title and a description, or is hidden from who cannot see it."""
    pictures = re.findall(r"<svg.*?</svg>", pages[name], re.DOTALL)
    assert pictures
    described = 0
    for picture in pictures:
        root = ET.fromstring(picture)  # noqa: S314 - our own page
        if root.get("aria-hidden") == "true":
            continue
        described += 1
        titles, words = root.find("title"), root.find("desc")
        assert titles is not None
        assert words is not None
        assert titles.text
        assert "logarithmic" in (words.text or "")
        named = (root.get("aria-labelledby") or "").split()
        assert named == [titles.get("id"), words.get("id")]
        numbers = re.findall(r"-?[0-9.]+", " ".join(path.get("d", "") for path in root.iter("path")))
        assert all(-1 <= float(number) <= 101 for number in numbers)
    assert described


@pytest.mark.parametrize("name", PAGES)
def test_ids_are_unique(pages: dict[str, str], name: str) -> None:
    """No two elements have the same id."""
    ids = re.findall(r'\bid="?([\w-]+)', pages[name])
    assert len(ids) == len(set(ids))


def test_hostile_names_are_text(pages: dict[str, str]) -> None:
    """A model's name cannot become markup, whatever its author wrote."""
    page = pages["hostile"]
    assert HOSTILE not in page
    assert "&lt;script src=&#39;https:" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert page.count("</title>") == 1 + page.count("<title id=")


@settings(max_examples=60, deadline=None)
@given(name=st.text(max_size=80))
def test_any_name_leaves_the_markup_alone(name: str) -> None:
    """The tags of the page are the same whatever the model is called."""
    tags = re.compile(r"<[^>]*>")
    wanted = tags.findall(html.sheet_page(drawn(small_model("x"), gpu=("L4",))))
    found = tags.findall(html.sheet_page(drawn(small_model(name or "x"), gpu=("L4",))))
    assert found == wanted


def test_figures_of_the_table_are_on_the_page(pages: dict[str, str]) -> None:
    """The table behind the charts has the bytes of the grid, and words where something does not fit."""
    page = pages["cards"]
    assert ">0.50<" in page
    assert "128.00 <small>no</small>" in page
    assert "All figures" in page


def test_what_is_left_out_is_said(pages: dict[str, str]) -> None:
    """A page that would grow too long says how many rows and lines are missing."""
    assert re.search(r"[0-9,]+ more rows: --csv has them all", pages["much"])
    assert "more lines are not drawn" in pages["much"]


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2)."""
    digits = colour.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2)."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(pages: dict[str, str], scheme: str) -> None:
    """Text and lines have a contrast of 4.5 and more to what they stand on, in both schemes."""
    blocks = re.findall(r":root\{(.*?)\}", pages["cards"])
    light, dark = (dict(re.findall(r"--([\w]+):(#[0-9a-f]+)", block)) for block in blocks[:2])
    colours = light if scheme == "light" else {**light, **dark}
    grounds = ("bg", "soft", "fits", "tight", "no")
    assert all(contrast(colours["fg"], colours[ground]) >= 4.5 for ground in grounds)
    assert contrast(colours["mut"], colours["bg"]) >= 4.5
    assert contrast(colours["mut"], colours["soft"]) >= 4.5
    for i in range(1, 9):
        assert contrast(colours[f"c{i}"], colours["bg"]) >= 4.5
        assert contrast(colours["on"], colours[f"c{i}"]) >= 4.5


@pytest.mark.skipif(BROWSER is None, reason="no Chromium to render the page with")
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_page_is_wider_than_its_window(pages: dict[str, str], tmp_path: Path, width: int) -> None:
    """Tables scroll inside themselves: the page itself never scrolls sideways."""
    assert BROWSER is not None
    measure = "<script>document.title=document.documentElement.scrollWidth+' of '+innerWidth</script>"
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", pages["layouts"])
    target = tmp_path / "page.html"
    target.write_text(page.replace("</body>", f"{measure}</body>"), encoding="utf-8")
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"),
            *(f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom", target.as_uri()),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = re.search(r"<title>([0-9]+) of ([0-9]+)</title>", done.stdout)
    assert found is not None
    assert int(found[1]) <= int(found[2])
