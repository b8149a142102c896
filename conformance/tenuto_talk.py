"""Tenuto's side of the cases that talk: a whole conversation with files, summaries, memory and clearing."""

import asyncio
import json
import tempfile
from pathlib import Path

from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.function import FunctionModel

from tenuto import Tenuto

USER, THREAD = "local", "case"


class Talk:
    """One case, step by step."""

    def __init__(self, app, home):
        self.app, self.home = app, home
        self.workspace = "default"
        self.answer = "Fine."
        self.operations, self.facts = [], []
        self.last, self.summaries = [], 0
        self.not_saved = False
        self.gate = None
        self.reached = asyncio.Event()

    def model(self):
        async def stream(messages, info):
            raw = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
            asked = str(raw[-1]["parts"][-1].get("content", ""))
            if "keep the state of the work up to date" in asked:
                self.summaries += 1
                yield json.dumps({"operations": [self.placed(op, asked) for op in self.operations]})
            elif "note what is worth remembering about the user" in asked:
                self.reached.set()
                if self.gate is not None:
                    await self.gate.wait()
                yield json.dumps({"operations": self.facts})
            else:
                self.last = [{"role": "system", "text": info.instructions or "", "calls": [], "results": []}]
                self.last += [self.neutral(message) for message in raw]
                yield self.answer

        return FunctionModel(stream_function=stream, model_name="case")

    def placed(self, operation, asked):
        """The operation with the number of the record that holds its quote."""
        for line in asked.partition("\nRecords that left the window:")[2].splitlines():
            if line.startswith("{") and operation.get("quote", "") in json.loads(line)["text"]:
                return {**operation, "record": json.loads(line)["record"]}
        return {**operation, "record": 1}

    @staticmethod
    def neutral(message):
        text = "\n".join(str(part.get("content", "")) for part in message["parts"])
        return {"role": "assistant" if message["kind"] == "response" else "user", "text": text, "calls": [], "results": []}

    @property
    def memory(self):
        return self.app.memory(workspace=self.workspace, user=USER)

    @property
    def thread(self):
        return self.app.thread(workspace=self.workspace, user=USER, thread=THREAD)

    async def step(self, step):
        if "file" in step:
            path = self.home / self.workspace / step["file"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step["text"])
        if "summary" in step:
            self.operations = step["summary"]
        if "facts" in step:
            self.facts = step["facts"]
        if "workspace" in step:
            self.workspace = step["workspace"]
        if "memory" in step:
            self.memory.switch(use=step["memory"])
        if "extract" in step:
            self.memory.switch(extract=step["extract"])
        if "remember" in step:
            self.memory.add(step["remember"])
        if "say" in step:
            self.answer = step.get("answer", "Fine.")
            if step.get("held"):
                self.gate = asyncio.Event()
            async for event in self.thread.send(step["say"]):
                if event.type == "turn_ended":
                    self.not_saved = event.not_saved
            if not step.get("held"):
                await self.app.app.jobs.settled()
            else:
                await self.reached.wait()
        if "compact" in step:
            await self.thread.compact()
        if "delete_memory" in step:
            self.memory.delete()
        if "clear" in step:
            await self.thread.clear()
        if "release" in step:
            self.gate.set()
            await self.app.app.jobs.settled()


async def talk(case):
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "agent": {"model": "case"},
            "sandbox": {"enabled": False},
            "context": {"history_tokens": case.get("budget", 32_000)},
        }
        app = Tenuto(folder, settings=settings, models={})
        played = Talk(app, Path(folder))
        app.app._given["case"] = played.model()
        async with app:
            for step in case["entries"]:
                await played.step(step)
            records = played.thread.records(limit=1_000)
            return {
                "messages": played.last,
                "attempts": played.summaries,
                "memory": [fact.text for fact in played.memory.facts()],
                "not_saved": played.not_saved,
                "task": [item.text for item in played.thread.task() if item.status == "active"],
                "kept": sum(record.message is not None for record in records),
            }
