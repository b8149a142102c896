"""Hourly readings of 12 office buildings over 366 days, with holidays and tariffs. The same on every machine.

kWh, computed from the building, the hour and a hash: nothing is stored and nothing is random.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cache

FIRST_DAY = date(2025, 12, 1)
DAYS = 366


@dataclass(frozen=True, slots=True)
class Building:
    id: str
    name: str
    name_zh: str
    area_m2: int


BUILDINGS = tuple(
    Building(f"B{number:02d}", f"Office {name}", f"{zh}办公楼", area)
    for number, (name, zh, area) in enumerate(
        [
            ("Acacia", "金合欢", 8_200),
            ("Birch", "白桦", 12_400),
            ("Cedar", "雪松", 15_900),
            ("Dogwood", "山茱萸", 6_300),
            ("Elm", "榆树", 9_800),
            ("Fir", "冷杉", 21_500),
            ("Ginkgo", "银杏", 18_700),
            ("Hazel", "榛树", 5_400),
            ("Ivy", "常春藤", 11_100),
            ("Juniper", "刺柏", 7_600),
            ("Larch", "落叶松", 13_300),
            ("Maple", "枫树", 16_800),
        ],
        start=1,
    )
)

_HOLIDAYS = (
    ("2026-01-01", 3),
    ("2026-02-15", 9),
    ("2026-04-04", 3),
    ("2026-05-01", 5),
    ("2026-06-19", 3),
    ("2026-09-25", 3),
    ("2026-10-01", 7),
)
"""Public holidays as (first day, days)."""

HOLIDAYS = frozenset(
    date.fromisoformat(first) + timedelta(days=offset) for first, days in _HOLIDAYS for offset in range(days)
)

VAT = 0.13
_NIGHT, _SHOULDER, _WORK = 0.28, 0.6, 1.0


def load_factor(moment: datetime) -> float:
    """Share of the full load in an hour: office hours, weekends, holidays, season."""
    hour = moment.hour
    day = _WORK if 8 <= hour < 18 else _SHOULDER if hour in (6, 7, 18, 19) else _NIGHT
    if moment.date() in HOLIDAYS:
        day *= 0.42
    elif moment.weekday() >= 5:
        day *= 0.55
    season = 1 + 0.25 * math.cos((moment.timetuple().tm_yday - 15) / 366 * 4 * math.pi)
    return day * season


@cache
def reading(building: Building, moment: datetime) -> float:
    """kWh of one hour, two decimals."""
    raw = hashlib.blake2b(f"{building.id}{moment:%Y%m%d%H}".encode(), digest_size=4).digest()
    noise = 0.9 + 0.2 * int.from_bytes(raw, "big") / 2**32
    return round(building.area_m2 * 0.021 * load_factor(moment) * noise, 2)


def hours(month: str) -> Iterator[datetime]:
    """The hours of a month (`2026-10`) that the data set covers."""
    first = date.fromisoformat(f"{month}-01")
    day = first
    while day.month == first.month:
        if FIRST_DAY <= day < FIRST_DAY + timedelta(days=DAYS):
            for hour in range(24):
                yield datetime(day.year, day.month, day.day, hour)
        day += timedelta(days=1)


def rows(month: str) -> list[dict[str, object]]:
    """One month of all offices: `{building, time, kwh, holiday}`, 8,640 to 8,928 rows for a whole month."""
    return [
        {
            "building": building.id,
            "time": moment.strftime("%Y-%m-%dT%H:00"),
            "kwh": reading(building, moment),
            "holiday": moment.date() in HOLIDAYS,
        }
        for building in BUILDINGS
        for moment in hours(month)
    ]


def total(month: str, *, holidays: bool) -> float:
    """The true total in kWh, two decimals, straight from the data set."""
    return round(
        math.fsum(
            reading(building, moment)
            for building in BUILDINGS
            for moment in hours(month)
            if holidays or moment.date() not in HOLIDAYS
        ),
        2,
    )


def tariff(month: str) -> dict[str, object]:
    """Price of a kWh in yuan, without and with value added tax."""
    net = round(0.62 + 0.01 * (date.fromisoformat(f"{month}-01").month % 4), 4)
    return {"month": month, "net": net, "gross": round(net * (1 + VAT), 6), "vat": VAT}
