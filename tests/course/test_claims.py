"""A claim is one quiet line where it holds, and stops the lesson where it does not."""

import numpy as np
import pytest
import torch

from course import claim


@pytest.mark.parametrize("true", [True, np.True_, torch.tensor(True)])
def test_a_claim_that_holds_is_one_line(true, capsys):
    claim("Rust perplexity fell by at least 25%", true)
    assert capsys.readouterr().out == "✓ Rust perplexity fell by at least 25%\n"


@pytest.mark.parametrize("false", [False, np.False_, torch.tensor(False), None])
def test_a_claim_that_does_not_hold_stops_with_its_sentence(false, capsys):
    with pytest.raises(AssertionError, match="fell by at least 25%"):
        claim("Rust perplexity fell by at least 25%", false)
    assert capsys.readouterr().out == ""
