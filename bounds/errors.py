"""The one error that bad input raises."""

from __future__ import annotations


class InputError(ValueError):
    """Input that the theory does not allow. The message names the field and the mend."""
