"""Plots, by matplotlib."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._errors import Error


def bars(ax: Any, names: Sequence[str], values: Sequence[int], of: str, unit: str) -> Any:
    """Draws bars into `ax`, or a new figure; returns the axes."""
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise Error("this needs matplotlib: pip install 'sluice[plot]'") from error
        _, ax = plt.subplots(figsize=(7, 0.6 + 0.3 * max(1, len(names))))
    ax.barh(range(len(names)), values)
    ax.set_yticks(range(len(names)), labels=names)
    ax.invert_yaxis()
    ax.set_xlabel(unit)
    ax.set_ylabel(of)
    return ax
