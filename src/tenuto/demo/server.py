"""The energy data set as an MCP server over stdio: `python -m tenuto.demo.server`."""

from __future__ import annotations

import json
import re
from typing import Any

from tenuto.demo import energy


def _month(value: str) -> str:
    if not re.fullmatch(r"20[0-9]{2}-(0[1-9]|1[0-2])", value):
        raise ValueError(f"month {value!r} is not of the form 2026-10")
    return value


def query_energy(month: str) -> str:
    """Hourly meter readings of all office buildings in one month, as JSON rows.

    Each row has building, time, kwh and holiday (whether the day is a public holiday). A month has thousands
    of rows. Write the month as 2026-10; data covers 2025-12 to 2026-11.
    """
    found = energy.rows(_month(month))
    if not found:
        raise ValueError(f"there are no readings for {month}; the data covers 2025-12 to 2026-11")
    return json.dumps(found, separators=(",", ":"))


def list_buildings() -> str:
    """The office buildings with id, English and Chinese name, and floor area in square metres."""
    return json.dumps(
        [{"id": b.id, "name": b.name, "name_zh": b.name_zh, "area_m2": b.area_m2} for b in energy.BUILDINGS],
        ensure_ascii=False,
    )


def get_tariff(month: str) -> str:
    """The electricity price of a month in yuan per kWh: net (without tax), gross (with tax), vat."""
    return json.dumps(energy.tariff(_month(month)))


def main() -> None:
    """Serve until the client goes."""
    from mcp.server import MCPServer  # pyright: ignore[reportMissingTypeStubs]

    server: Any = MCPServer("energy")
    for tool in (query_energy, list_buildings, get_tariff):
        server.tool()(tool)
    server.run("stdio")


if __name__ == "__main__":
    main()
