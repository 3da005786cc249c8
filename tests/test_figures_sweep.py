"""The sweep's figures: what they draw, how they label it, and that labels keep apart."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from figures.bound_vs_T import bound_vs_T
from figures.sweep import (
    drawn_bounds,
    joined_titles,
    number_math,
    order_math,
    save,
    spread,
    sweep_figure,
)
from simulations.sweep import SweepResult, sweep


@pytest.fixture(scope="module")
def result() -> SweepResult:
    return sweep({"T": 2.0 ** np.arange(4, 17), "kl_max": [1e-6, 1e-5, 1e-4]})


def _panels(figure: Figure) -> list:  # type: ignore[type-arg]
    return [axes for axes in figure.axes if axes.axison]


def test_one_log_log_panel_per_kl_max(result: SweepResult) -> None:
    figure = sweep_figure(result.table, result.slopes)
    panels = _panels(figure)
    assert [axes.get_title(loc="left") for axes in panels] == [
        rf"$\delta = 10^{{{p}}}$" for p in (-6, -5, -4)
    ]
    for axes in panels:
        assert axes.get_xscale() == axes.get_yscale() == "log"
        assert any("fitted slope 1.50" in text.get_text() for text in axes.texts)
        assert any(np.all(np.asarray(line.get_ydata()) == 1.0) for line in axes.lines)
    assert "tokens" in panels[-1].get_xlabel()
    assert "Error" in panels[0].get_ylabel()


@pytest.mark.parametrize("which", ["all", "default", "vs_T"])
def test_labels_do_not_overlap(result: SweepResult, which: str) -> None:
    if which == "vs_T":
        held = sweep({"T": [256, 1024, 4096, 16384], "kl_max": [1e-4], "kl_seq": [0.01]}).table
        figure = bound_vs_T(held)
    else:
        names = ["classical-kl", "mixed-kl", "coupling"] if which == "all" else []
        figure = sweep_figure(result.table, result.slopes, names)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in _panels(figure):
        boxes = sorted(
            (
                t.get_window_extent(canvas.get_renderer())
                for t in axes.texts
                if t.get_transform() == axes.transAxes
            ),
            key=lambda box: box.y0,
        )
        assert boxes
        for below, above in pairwise(boxes):
            assert below.y1 <= above.y0 + 1.0
        for box in boxes:
            assert box.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= box.y0
            assert box.y1 <= figure.bbox.y1


def test_default_draws_full_forms_once(result: SweepResult) -> None:
    names = drawn_bounds(result.slopes)
    assert "classical-kl" in names
    assert "square-root" in names
    assert not any("small" in name or "sharp" in name or "unified" in name for name in names)
    assert drawn_bounds(result.slopes, ["unified", "mixed-kl-small"]) == [
        "unified",
        "mixed-kl-small",
    ]


def test_small_forms_are_dashed_and_approximations_dotted(result: SweepResult) -> None:
    names = ["mixed-kl", "pinsker-marginal-kl-small", "martingale-chi2"]
    figure = sweep_figure(result.table, result.slopes, names)
    lines = [li for li in _panels(figure)[0].lines if len(np.asarray(li.get_xdata())) == 13]
    assert len(lines) == 3
    patterns = {line.get_linestyle() for line in lines}
    assert "-" in patterns
    assert "--" in patterns
    assert len({line.get_color() for line in lines}) == 3


def test_paper_figure_marks_the_published_values() -> None:
    held = sweep({"T": [256, 1024, 4096, 16384], "kl_max": [1e-4], "kl_seq": [0.01]}).table
    figure = bound_vs_T(held)
    text = " ".join(t.get_text() for t in figure.axes[0].texts)
    for published in ("1677", "34.95", "8.192", "0.3351"):
        assert published in text
    assert "K_" in figure.axes[0].get_title(loc="left")


@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_files_are_written_and_repeatable(
    result: SweepResult, tmp_path: Path, kind: str, magic: bytes
) -> None:
    contents = []
    for run in (1, 2):
        path = tmp_path / f"{run}.{kind}"
        save(sweep_figure(result.table, result.slopes), path, kind)
        contents.append(path.read_bytes())
    assert contents[0].startswith(magic)
    assert len(contents[0]) > 10_000
    assert contents[0] == contents[1]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_spread_keeps_the_gap(wanted: list[float]) -> None:
    places = spread(wanted, 0.05, 0.0, 1.0)
    assert min(np.diff(sorted(places)), default=1.0) >= 0.05 - 1e-9
    assert min(places) >= -1e-9
    assert max(places) <= 1 + 1e-9
    order = np.argsort(wanted, kind="stable")
    assert np.all(np.diff(np.asarray(places)[order]) > 0)


def test_words() -> None:
    assert joined_titles(["Mixed (KL)", "Mixed (TV)", "Adaptive"]) == "Mixed (KL, TV) = Adaptive"
    assert order_math("T^(3/2)") == "$T^{3/2}$"
    assert order_math("T") == "$T$"
    assert number_math(1e-4) == "10^{-4}"
    assert number_math(2.5e-7) == r"2.5 \times 10^{-7}"
    assert number_math(0.01) == "0.01"
