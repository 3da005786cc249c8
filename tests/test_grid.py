"""Grid specifications, against values written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bounds.errors import InputError
from simulations.grid import parse_grid


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ("16:256:x2", [16, 32, 64, 128, 256]),
        ("16:255:x2", [16, 32, 64, 128]),
        ("1:100:+10", [1, 11, 21, 31, 41, 51, 61, 71, 81, 91]),
        ("1:100:33", [1, 34, 67, 100]),
        ("1:8:n4", [1, 2, 4, 8]),
        ("1:3:n9", [1, 2, 3]),
        ("7", [7]),
        ("4096,16, 4096 ,64", [16, 64, 4096]),
        ("1,2,10:100:x10", [1, 2, 10, 100]),
        ("1e3:1e5:x10", [1000, 10000, 100000]),
        ("5:5:x2", [5]),
        ("5:5:n1", [5]),
        ("1:4:1e0", [1, 2, 3, 4]),
    ],
)
def test_horizons(spec: str, wanted: list[int]) -> None:
    assert parse_grid("T", spec).tolist() == wanted


def test_divergences_are_float64_and_end_where_asked() -> None:
    assert parse_grid("kl_max", "1e-6,1e-5,1e-4").tolist() == [1e-6, 1e-5, 1e-4]
    tenths = parse_grid("tv_max", "0:1:0.1")
    assert tenths.dtype == np.float64
    assert tenths.size == 11
    assert tenths[-1] == 1.0
    spaced = parse_grid("kl_max", "1e-6:1e-2:n5")
    np.testing.assert_allclose(spaced, [1e-6, 1e-5, 1e-4, 1e-3, 1e-2], rtol=1e-12)
    assert parse_grid("kl_max", "1e-8:1e-2:x10").size == 7


@pytest.mark.parametrize(
    ("name", "spec", "says"),
    [
        ("T", "", "empty"),
        ("T", "  ", "empty"),
        ("T", "1,,2", "empty number"),
        ("T", "16:65536:x1", "above 1"),
        ("T", "16:65536:x0", "above 1"),
        ("T", "16:65536:x-2", "above 1"),
        ("T", "16:64:+0", "above 0"),
        ("T", "16:64:-1", "above 0"),
        ("T", "16:64:n0", "whole"),
        ("T", "16:64:n2.5", "whole"),
        ("T", "16:64:n1", "both ends"),
        ("T", "64:16:x2", "after its end"),
        ("T", "16:64", "start:stop:step"),
        ("T", "16:64:x2:3", "start:stop:step"),
        ("T", "many", "not a number"),
        ("T", "16:64:y2", "not a number"),
        ("T", "nan", "not finite"),
        ("T", "1:inf:x2", "not finite"),
        ("T", "10.5", "whole number"),
        ("T", "0", "whole number"),
        ("T", "-4", "whole number"),
        ("T", "1:10:x1.5", "whole number"),
        ("T", "1.5:8.5:n3", "whole number"),
        ("T", "1:1e9:+1", "more than 1e+08"),
        ("T", "1:2:x1.0000000000001", "more than 1e+08"),
        ("kl_max", "0:1:x2", "starts above 0"),
        ("kl_max", "1:2:n1e9", "more than 1e+08"),
        ("kl_max", "1;2", "not a number"),
    ],
)
def test_bad_specs_say_what_and_how(name: str, spec: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_grid(name, spec)
    message = str(caught.value)
    option = "--T" if name == "T" else "--kl-max"
    assert message.startswith(option)
    assert says in message
    assert "\n" not in message
    example = message.rsplit(f"e.g. {option} ", 1)[1]
    assert parse_grid(name, example).size > 1


@given(st.text(alphabet="0123456789:,xn+-.e ", max_size=24))
def test_any_text_gives_a_grid_or_one_line(spec: str) -> None:
    message = ""
    try:
        values = parse_grid("T", spec)
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    if not message:
        assert np.all(np.diff(values) > 0)
        assert np.all(values == np.floor(values))
        assert values[0] >= 1
