"""The demo's story: questions to the rule-based model, and for each promise what was shown and what is true.

Every number is compared with the one computed straight from the data set; the model itself knows no numbers.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from tenuto.agent.app import EXTRACT_MEMORY, REFRESH_TASK, App, Workspace
from tenuto.agent.events import Event, RequestSent, ToolReturned, TurnEnded
from tenuto.agent.inspect import context_of, past_request
from tenuto.agent.verify import verify
from tenuto.codec import JsonObject, loads, now
from tenuto.demo import energy
from tenuto.demo.keeper import EXCLUDE
from tenuto.errors import NotFound
from tenuto.results.store import ResultStore
from tenuto.scope import Scope

MONTH, OTHER = "2026-10", "2026-09"
STYLING_TURNS = 40
REFRESHES = 3
HISTORY_TOKENS = 3_000
"""Small, so that the first question leaves the window within the demo."""
WORKSPACE = "demo"


CHECKS: dict[str, tuple[str, str]] = {
    "whole": ("the total over the whole result", "对完整结果的总量"),
    "saved": ("the saved result is the whole answer of the server", "保存的结果就是服务器的完整回答"),
    "chart": ("the chart is a PNG of the conversation", "图表是该会话的 PNG 文件"),
    "preview": ("rows of the result that the model was shown", "模型看到的结果行数"),
    "overflow": ("the total right after the first question left the window", "第一个问题刚离开窗口时的总量"),
    "bridge": (
        "the first question is carried word for word, its summary held back",
        "摘要被推迟时，第一个问题被逐字带上",
    ),
    "gone": ("the first turn left the window", "第一轮已离开窗口"),
    "again": ("the total after {n} more turns", "又过 {n} 轮之后的总量"),
    "task": ("the condition stands in the task, in the user's own words", "条件以用户原话保存在任务中"),
    "compare": ("two months compared", "两个月对比"),
    "withdrawn": ("the total once holidays count again", "重新计入节假日后的总量"),
    "dead": ("the condition after {n} more refreshes", "再经过 {n} 次刷新后该条件的状态"),
    "stays": ("the total after {n} more refreshes", "再经过 {n} 次刷新后的总量"),
    "requeried": ("an expired file is queried again", "过期文件被重新查询"),
    "says": ("and the answer says so", "并且回答说明了这一点"),
    "fresh": ("the total from the new file", "由新文件得到的总量"),
    "preference": (
        "a new thread knows the corrected preference and not the old one",
        "新会话知道更正后的偏好，而非旧的",
    ),
    "killed": (
        "the total in the turn after a process was killed in mid-turn",
        "进程在一轮中途被杀死后，下一轮的总量",
    ),
    "unrepeated": ("queries of that thread: none was made twice", "该会话的查询次数：没有重复调用"),
    "budget": ("requests over the history budget, of {n}", "{n} 次请求中超出历史预算的次数"),
    "lost": ("requests that lost a question", "丢失问题的请求数"),
    "rebuilt": ("requests that rebuild to the same bytes, of {n}", "{n} 次请求中可重建为相同字节的次数"),
    "running": ("jobs that ran while the thread was cleared", "清除会话时正在运行的任务"),
    "cleared": ("files that still hold the thread's words after the clear", "清除后仍含该会话内容的文件数"),
    "verified": ("what a check of every file found", "检查所有文件的发现数"),
    "foreign": ("a foreign thread doesn't exist", "别人的会话如同不存在"),
}
"""What is promised, in English and Chinese."""


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: what was shown, what is true."""

    key: str
    language: str
    shown: Any
    truth: Any
    n: int = 0

    @property
    def name(self) -> str:
        return CHECKS[self.key][0].format(n=self.n)

    @property
    def name_zh(self) -> str:
        return CHECKS[self.key][1].format(n=self.n)

    @property
    def held(self) -> bool:
        return self.shown == self.truth


class Watcher(Protocol):
    """Who follows the story: the terminal, or nobody."""

    def heading(self, key: str, **values: object) -> None: ...

    def question(self, text: str) -> None: ...

    def event(self, event: Event) -> None: ...

    def context(self, context: JsonObject) -> None: ...

    def chart(self, path: Path) -> None: ...

    def receipt(self, receipt: JsonObject) -> None: ...


@dataclass(slots=True)
class Told:
    """What a turn brought."""

    answer: str = ""
    requests: list[JsonObject] = field(default_factory=list[JsonObject])
    returned: list[ToolReturned] = field(default_factory=list[ToolReturned])

    @property
    def numbers(self) -> list[float]:
        """The amounts of energy or money in the answer: those with two decimals."""
        return [float(text.replace(",", "")) for text in re.findall(r"[0-9][0-9,]*\.[0-9]{2}\b", self.answer)]


@dataclass(frozen=True, slots=True)
class Script:
    """The questions in one language."""

    language: str
    thread: str
    heading: str
    first: str
    styles: Sequence[str]
    again: str
    compare: str
    withdraw: str
    requeried: str
    prefer: str
    """A preference, and the month it is said in."""
    correct: str
    language_asked: str
    language_known: str


CHINESE = Script(
    "zh",
    "office-energy",
    "demo_thread_zh",
    "分析2026年10月办公楼的能耗，排除节假日，并画图",
    ("把柱子的颜色改成{}", "标题的字体大一点，用{}", "图例放到{}", "坐标轴的网格改成{}"),
    "按最新样式重新计算2026年10月的总量",
    "把2026年10月和2026年9月对比一下",
    "还是算上节假日吧，2026年10月总量是多少？",
    "已重新查询",
    "我的月报都用中文",
    "我的月报改用英文",
    "我的月报用哪种语言？",
    "月报用英文。",
)
ENGLISH = Script(
    "en",
    "office-energy-en",
    "demo_thread_en",
    "Analyse the energy use of the offices in October 2026, leave out public holidays, and draw a chart",
    (
        "Change the bar colour to {}",
        "Use a bigger title font, {}",
        "Put the legend at {}",
        "Make the grid {}",
    ),
    "Now recompute the total for October 2026",
    "Compare October 2026 with September 2026",
    "Count the holidays after all: what is the total for October 2026?",
    "queried again",
    "My monthly reports are in Chinese",
    "I want my monthly reports in English",
    "Which language are my monthly reports in?",
    "Your monthly reports are in English.",
)
VARIANTS = ("teal", "amber", "slate", "rose", "moss", "indigo", "sand", "plum", "steel", "coral")


def settings() -> JsonObject:
    """The demo workspace: its energy server, two members, a small history budget."""
    server = {"command": sys.executable, "args": ["-m", "tenuto.demo.server"], "prefix": ""}
    members = {name: {"role": "member", "grants": ["python"]} for name in ("ming", "anna")}
    return {"mcp": {"energy": server}, "members": members, "context": {"history_tokens": HISTORY_TOKENS}}


async def tell(home: Path, watcher: Watcher) -> list[Check]:
    """Run the story in both languages; returns every promise with what became of it."""
    checks: list[Check] = []
    async with App(home, overrides=settings()) as app:
        workspace = app.workspace(WORKSPACE)
        for script, user in ((CHINESE, "ming"), (ENGLISH, "anna")):
            teller = _Teller(app, home, workspace, Scope(WORKSPACE, user, script.thread), script, watcher)
            checks += await teller.run()
        checks.append(_foreign(workspace))
    return checks


def _texts(context: JsonObject, layer: str) -> str:
    """What stands in a layer of a request."""
    blocks = (block for block in context["blocks"] if block["layer"] == layer)
    return "\n".join(entry["text"] for block in blocks for entry in block["entries"])


def _foreign(workspace: Workspace) -> Check:
    """Anna asks for Ming's thread: for her it doesn't exist (I13)."""
    try:
        workspace.thread(Scope(WORKSPACE, "anna", CHINESE.thread))
    except NotFound as error:
        return Check("foreign", "", error.code, "not_found")
    return Check("foreign", "", "found", "not_found")


class _Teller:
    """One language's thread, from the first question to the last."""

    def __init__(
        self, app: App, home: Path, workspace: Workspace, scope: Scope, script: Script, watcher: Watcher
    ) -> None:
        self._app = app
        self._home = home
        self._workspace = workspace
        self._scope = scope
        self._script = script
        self._watcher = watcher
        self._checks: list[Check] = []
        self._requests: list[JsonObject] = []
        self._first_turn_end = 0

    async def run(self) -> list[Check]:
        self._watcher.heading(self._script.heading)
        await self._first()
        styled = await self._overflow()
        await self._styling(STYLING_TURNS - styled)
        await self._again()
        await self._compare()
        await self._withdrawn()
        await self._refreshes()
        await self._expired()
        self._whole_thread()
        await self._preference()
        await self._killed()
        await self._cleared()
        return self._checks

    def _check(self, key: str, shown: Any, truth: Any, n: int = 0) -> None:
        self._checks.append(Check(key, self._script.language, shown, truth, n))

    async def _ask(self, text: str, *, quiet: bool = False, scope: Scope | None = None) -> Told:
        told = Told()
        if not quiet:
            self._watcher.question(text)
        async for event in self._app.send(scope or self._scope, text, model="demo").events():
            if not quiet:
                self._watcher.event(event)
            if isinstance(event, RequestSent):
                told.requests.append(event.manifest)
            elif isinstance(event, ToolReturned):
                told.returned.append(event)
            elif isinstance(event, TurnEnded):
                told.answer = event.answer
        if scope is None:
            self._requests += told.requests
        return told

    def _show_context(self) -> JsonObject:
        conversation = self._workspace.conversation(self._workspace.thread(self._scope))
        context = context_of(conversation, texts_too=True)
        self._watcher.context(context)
        return context

    async def _first(self) -> None:
        told = await self._ask(self._script.first)
        self._check("whole", told.numbers[:1], [energy.total(MONTH, holidays=False)])
        saved = next(returned for returned in told.returned if returned.result)
        content = self._workspace.results(self._scope).read(saved.result)
        self._check("saved", loads(content) == energy.rows(MONTH), True)
        names = [name for returned in told.returned for name in returned.files]
        chart = self._workspace.files(self._scope).path(names[0]) if names else None
        drawn = chart is not None and chart.read_bytes().startswith(b"\x89PNG")
        self._check("chart", drawn, True)
        if chart is not None:
            self._watcher.chart(chart)
        thread = self._workspace.thread(self._scope)
        self._first_turn_end = self._workspace.conversation(thread).log.last_seq
        preview = max((returned.text.count('"kwh"') for returned in told.returned), default=0)
        self._check("preview", preview, 5)
        self._show_context()

    async def _style(self, number: int) -> None:
        style = self._script.styles[number % len(self._script.styles)]
        await self._ask(style.format(VARIANTS[number % len(VARIANTS)]), quiet=True)

    async def _overflow(self) -> int:
        """The first question leaves the window while the summary job is held back. Returns the turns it took."""
        self._watcher.heading("demo_held")
        release = self._app.jobs.hold(REFRESH_TASK)
        turns = 0
        while turns < STYLING_TURNS and self._window_start() <= self._first_turn_end:
            await self._style(turns)
            turns += 1
        told = await self._ask(self._script.again)
        self._check("overflow", told.numbers[:1], [energy.total(MONTH, holidays=False)])
        context = self._show_context()
        self._check("bridge", self._script.first in _texts(context, "bridge"), True)
        self._check("gone", context["marks"]["start"] > self._first_turn_end, True)
        release()
        await self._app.jobs.settled(*self._key)
        return turns

    @property
    def _key(self) -> tuple[str, str, str]:
        return (self._scope.workspace, self._scope.user, self._scope.thread)

    def _window_start(self) -> int:
        conversation = self._workspace.conversation(self._workspace.thread(self._scope))
        return conversation.marks(self._workspace.settings.context).start

    async def _styling(self, turns: int) -> None:
        self._watcher.heading("demo_turns", count=turns)
        for number in range(turns):
            await self._style(number)
        await self._app.jobs.settled(*self._key)

    async def _again(self) -> None:
        told = await self._ask(self._script.again)
        self._check("again", told.numbers[:1], [energy.total(MONTH, holidays=False)], STYLING_TURNS)
        context = self._show_context()
        condition = EXCLUDE.search(self._script.first)
        assert condition is not None
        self._check("task", f'"{condition[0]}"' in _texts(context, "task"), True)

    async def _refreshes(self) -> None:
        """Three refreshes later, the condition that was taken back is still dead."""
        self._watcher.heading("demo_refreshes", count=REFRESHES)
        for number in range(REFRESHES):
            for style in range(3):
                await self._style(number + style)
            await self._app.compact(self._scope)
        thread = self._workspace.thread(self._scope)
        items = self._workspace.tasks.items(thread, self._workspace.conversation(thread))
        self._check(
            "dead", [item.status for item in items if item.kind == "constraint"], ["withdrawn"], REFRESHES
        )
        told = await self._ask(self._script.again)
        self._check("stays", told.numbers[:1], [energy.total(MONTH, holidays=True)], REFRESHES)
        self._show_context()

    async def _preference(self) -> None:
        """A preference is noted, corrected, and reaches a second thread."""
        self._watcher.heading("demo_preference")
        self._workspace.memories.switch(self._scope.user, use=True, extract=True)
        for text in (self._script.prefer, self._script.correct):
            await self._ask(text)
            await self._app.jobs.settled(self._scope.workspace, self._scope.user)
        second = Scope(self._scope.workspace, self._scope.user, f"{self._scope.thread}-second")
        told = await self._ask(self._script.language_asked, scope=second)
        self._check("preference", told.answer, self._script.language_known)

    async def _killed(self) -> None:
        """A process dies in mid-turn, right after a tool's result; the next turn goes on from the log."""
        self._watcher.heading("demo_killed")
        third = Scope(self._scope.workspace, self._scope.user, f"{self._scope.thread}-third")
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "tenuto.demo.crash",
                str(self._home),
                third.user,
                third.thread,
                self._script.first,
            ),
            stderr=asyncio.subprocess.DEVNULL,
        )
        await process.wait()
        told = await self._ask(self._script.again, scope=third)
        self._check("killed", told.numbers[:1], [energy.total(MONTH, holidays=False)])
        log = self._workspace.conversation(self._workspace.thread(third)).log
        called = [
            part["tool_name"]
            for record in log.scan()
            if record.message is not None
            for part in record.message["parts"]
            if part.get("part_kind") == "tool-call"
        ]
        self._check("unrepeated", called.count("query_energy"), 1)

    async def _cleared(self) -> None:
        """The thread is cleared while a summary and an extraction run: nothing comes back."""
        self._watcher.heading("demo_clear")
        releases = [self._app.jobs.hold(kind) for kind in (REFRESH_TASK, EXTRACT_MEMORY)]
        number = 0
        while number < STYLING_TURNS and REFRESH_TASK not in self._app.jobs.running(*self._key):
            await self._style(number)
            number += 1
        running = sorted(self._app.jobs.running(self._scope.workspace, self._scope.user))
        self._check("running", running, [EXTRACT_MEMORY, REFRESH_TASK])
        receipt = await self._app.clear(self._scope)
        self._watcher.receipt(receipt)
        for release in releases:
            release()
        await self._app.jobs.settled(self._scope.workspace, self._scope.user)
        words = self._script.styles[0].format(VARIANTS[0]).encode()
        holding = [path for path in self._home.rglob("*") if path.is_file() and words in path.read_bytes()]
        self._check("cleared", len(holding), 0)
        self._check("verified", len(verify(self._workspace).findings), 0)

    async def _compare(self) -> None:
        told = await self._ask(self._script.compare)
        truth = [energy.total(month, holidays=False) for month in (MONTH, OTHER)]
        self._check("compare", told.numbers[:2], truth)

    async def _withdrawn(self) -> None:
        told = await self._ask(self._script.withdraw)
        self._check("withdrawn", told.numbers[:1], [energy.total(MONTH, holidays=True)])

    async def _expired(self) -> None:
        self._watcher.heading("demo_expire")
        rules = self._workspace.settings.results
        folder = self._workspace.results(self._scope).folder
        later = ResultStore(folder, rules, clock=lambda: now() + timedelta(seconds=rules.ttl + 60))
        later.all()
        told = await self._ask(self._script.again)
        queried = any(returned.tool.endswith("query_energy") for returned in told.returned)
        self._check("requeried", queried, True)
        self._check("says", self._script.requeried in told.answer, True)
        self._check("fresh", told.numbers[:1], [energy.total(MONTH, holidays=True)])

    def _whole_thread(self) -> None:
        history = [
            sum(block["tokens"] for block in manifest["blocks"] if block["layer"] in ("history", "turn"))
            for manifest in self._requests
        ]
        over = sum(tokens > HISTORY_TOKENS for tokens in history)
        self._check("budget", over, 0, len(history))
        partial = sum(manifest["coverage"] == "partial" for manifest in self._requests)
        self._check("lost", partial, 0)
        conversation = self._workspace.conversation(self._workspace.thread(self._scope))
        same = [
            past_request(conversation, manifest["turn"], manifest["step"]).same for manifest in self._requests
        ]
        self._check("rebuilt", sum(same), len(same), len(same))
