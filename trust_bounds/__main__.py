"""``python -m trust_bounds``."""

from trust_bounds.cli import main

main()
