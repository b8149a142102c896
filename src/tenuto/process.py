"""What a process of Tenuto's own sets once. A program that only imports the library keeps its settings."""

import gc

GENERATIONS = (50_000, 20, 50)
"""Containers made between two collections. Parsed records live long and hold no cycles: Python's own 700 would
walk them again and again, a fifth of a turn's time."""


def tune() -> None:
    """Set the garbage collector for long-lived parsed JSON."""
    gc.set_threshold(*GENERATIONS)
