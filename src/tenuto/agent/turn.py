"""The loop of one turn: request, response, tools, until there is an answer.

Pydantic AI runs model and tools; what the model sees comes from our log each time, never from the run's own
history. So a run can be started again at any point (after a crash, or when a provider refused the request's
size) and goes on with what is on record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from tenuto.agent.conversation import INTERRUPTED, TURN_ENDED, Conversation, Live, RequestRules
from tenuto.agent.events import (
    Event,
    RequestSent,
    TextDelta,
    ThinkingDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
)
from tenuto.agent.models import LearnedWindows, request_settings, true_window, wants_cache_mark
from tenuto.agent.tools import Offer, ToolPlace, as_tool
from tenuto.codec import JsonError, JsonObject, loads
from tenuto.context.assemble import Request, reserved_output
from tenuto.context.fence import Section
from tenuto.errors import LateWrite, ModelFailed, TenutoError, ThreadCleared
from tenuto.log.blobs import has_binary

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model
    from pydantic_ai.run import AgentRun

SHOWN_CHARS = 2_000


@dataclass(slots=True)
class Spent:
    """What a turn used, added up over its requests."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0

    def add(self, response: ModelResponse) -> None:
        usage = response.usage
        self.requests += 1
        self.input_tokens += usage.input_tokens
        self.cached_tokens += usage.cache_read_tokens
        self.output_tokens += usage.output_tokens
        try:
            price = float(response.cost().total_price)
        except (LookupError, ValueError, AssertionError):
            self.cost_usd = None
        else:
            self.cost_usd = None if self.cost_usd is None else self.cost_usd + price

    def as_json(self) -> JsonObject:
        return {
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": None if self.cost_usd is None else round(self.cost_usd, 6),
        }


@dataclass(slots=True)
class TurnLoop:
    """One turn of a conversation, from the logged question to the logged answer."""

    conversation: Conversation
    turn: int
    model: Model
    rules: RequestRules
    instructions: str
    offers: Sequence[Offer]
    place: ToolPlace
    learned: LearnedWindows
    sections: Callable[[], tuple[Section, ...]] | None = None
    """Task and memory as they are now: asked for again when a tool changed the memory."""
    refresh: Callable[[RequestRules], Awaitable[RequestRules | None]] | None = None
    """Called once a turn when the bridge is full: rules with a fresher task, None if that failed (I3)."""
    step: int = 0
    spent: Spent = field(default_factory=Spent)
    answer: str = ""
    _writes: int = 0
    _not_saved: bool = False
    _request: Request | None = None
    _settled: set[str] = field(default_factory=set[str])
    _calls: dict[str, str] = field(default_factory=dict[str, str])
    _partial: list[str] = field(default_factory=list[str])
    _converted: dict[int, tuple[JsonObject, ModelMessage]] = field(
        default_factory=dict[int, "tuple[JsonObject, ModelMessage]"]
    )

    async def run(self) -> TurnEnded:
        """Run to the end; every way out is logged. Doesn't raise, but for cancellation it ends `stopped`."""
        try:
            await self._run_again_if_too_long()
        except asyncio.CancelledError:
            try:
                return self._ended("stopped", None)
            except ThreadCleared as error:
                return self._told("stopped", error)
        except (ThreadCleared, LateWrite) as error:
            return self._told("failed", error)
        except TenutoError as error:
            return self._ended("failed", error)
        return self._ended("answered", None)

    async def _run_again_if_too_long(self) -> None:
        """A refusal for length teaches the true window; the request is cut and sent once more (I18)."""
        try:
            await self._loop()
        except ModelFailed as error:
            window = true_window(error.message)
            if window is None:
                raise
            window = window or int(self._used() * 0.8)
            self.learned.learn(self.rules.model.name, window)
            output = min(self.rules.model.output, max(256, window // 4))
            self.rules = replace(self.rules, model=replace(self.rules.model, window=window, output=output))
            self._partial.clear()
            await self._loop()

    def _used(self) -> int:
        return self._request.predicted if self._request else self.rules.model.window

    async def _loop(self) -> None:
        from pydantic_ai import Agent
        from pydantic_ai.exceptions import AgentRunError, UserError
        from pydantic_ai.usage import UsageLimits

        agent = self._agent()
        limits = UsageLimits(request_limit=self.place.settings.agent.requests)
        try:
            async with agent.iter("(the question is in the log)", usage_limits=limits) as run:
                async for node in run:
                    if Agent.is_model_request_node(node):
                        await self._stream_response(node, run)
                    elif Agent.is_call_tools_node(node):
                        await self._stream_tools(node, run)
        except (AgentRunError, UserError, OSError) as error:
            raise _as_failure(error, self.rules.model.name) from error

    def _agent(self) -> Agent[None, str]:
        from pydantic_ai import Agent

        return Agent[None, str](
            self.model,
            output_type=str,
            deps_type=type(None),
            instructions=self.instructions,
            tools=[as_tool(offer, self.place) for offer in self.offers],
            capabilities=[_capability(self)],
            model_settings=cast(
                "Any",
                request_settings(self.rules.model, reserved_output(self.rules.model, self.rules.settings)),
            ),
        )

    async def _stream_response(self, node: Any, run: AgentRun[None, str]) -> None:
        from pydantic_ai.messages import (
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
            ThinkingPart,
            ThinkingPartDelta,
        )

        self._partial.clear()
        async with node.stream(run.ctx) as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    self._text(event.part.content)
                elif isinstance(event, PartStartEvent) and isinstance(event.part, ThinkingPart):
                    self._emit(ThinkingDelta(event.part.content))
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                    self._text(event.delta.content_delta)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta):
                    self._emit(ThinkingDelta(event.delta.content_delta or ""))

    def _text(self, piece: str) -> None:
        if piece:
            self._partial.append(piece)
            self._emit(TextDelta(piece))

    async def _stream_tools(self, node: Any, run: AgentRun[None, str]) -> None:
        from pydantic_ai.messages import FunctionToolCallEvent, FunctionToolResultEvent

        async with node.stream(run.ctx) as stream:
            async for event in stream:
                if isinstance(event, FunctionToolCallEvent):
                    part = event.part
                    self._calls[part.tool_call_id] = part.tool_name
                    self._emit(ToolCalled(part.tool_call_id, part.tool_name, _arguments(part.args)))
                elif isinstance(event, FunctionToolResultEvent):
                    self.settle([event.part])

    def _emit(self, event: Event) -> None:
        self.place.emit(event)

    # -- between the model and the log ------------------------------------------------------------------

    async def next_request(self, seen: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Log what settled, then assemble the next request from the log (I1)."""
        if seen:
            self.settle(seen[-1].parts)
        memory = self.place.memory
        if memory is not None and self.sections is not None and memory.writes != self._writes:
            # What was just forgotten must not stand in the next request of the same turn.
            self._writes = memory.writes
            self.rules = replace(self.rules, sections=self.sections())
        request = self.conversation.request(self.rules, step=self.step)
        if request.manifest["coverage"] == "partial" and self.refresh is not None:
            refresh, self.refresh = self.refresh, None
            if (fresher := await refresh(self.rules)) is not None:
                self.rules = fresher
                request = self.conversation.request(self.rules, step=self.step)
        self.step += 1
        self._request = request
        self._emit(RequestSent(request.manifest["step"], request.manifest))
        return self._convert(request)

    def settle(self, parts: Sequence[Any]) -> None:
        """Log tool results as they settle; one that is logged already is passed over."""
        fresh = [
            part
            for part in parts
            if part.part_kind in ("tool-return", "retry-prompt")
            and getattr(part, "tool_name", None)
            and part.tool_call_id not in self._settled
        ]
        fresh += [part for part in parts if part.part_kind == "retry-feedback"]
        if not fresh:
            return
        dumped = _dump_parts(fresh)
        records = self.conversation.settle_results(self.turn, dumped)
        for part, raw in zip(fresh, dumped, strict=True):
            if part.part_kind != "retry-feedback":
                self._settled.add(part.tool_call_id)
                self._emit(self._returned(raw, records[-1].seq))

    def _returned(self, part: JsonObject, seq: int) -> ToolReturned:
        metadata: JsonObject = part.get("metadata") or {}
        name = str(metadata.get("result", ""))
        content = part.get("content")
        text = content if isinstance(content, str) else str(content)
        return ToolReturned(
            call_id=part["tool_call_id"],
            tool=part["tool_name"],
            outcome=str(part.get("outcome", "success")),
            text=text[:SHOWN_CHARS],
            ms=float(metadata.get("ms", 0)),
            result=name,
            rows=metadata.get("rows"),
            files=list(metadata.get("files", ())),
        )

    def settle_response(self, response: ModelResponse) -> None:
        """Log a complete response with the manifest of its request."""
        self.spent.add(response)
        message = _dump(response)
        self._partial.clear()
        self.answer = "".join(part["content"] for part in message["parts"] if part.get("part_kind") == "text")
        if any(part.get("part_kind") == "tool-call" for part in message["parts"]):
            self.conversation.settle_response(self.turn, self._request, message)
        else:
            end: JsonObject = {"type": TURN_ENDED, "reason": "answered", "usage": self.spent.as_json()}
            if self.place.memory is not None and self.place.memory.unsaved_claim(self.answer):
                end["not_saved"] = self._not_saved = True
            self.conversation.settle_response(self.turn, self._request, message, end)
            if self._request is not None:
                tools = tuple(offer.definition for offer in self.offers)
                sent = (*self._request.messages, message)
                self.conversation.live = Live(self._request, self.instructions, tools, sent)
        self._settled.clear()
        self._request = None

    def broke_off(self, error: BaseException) -> None:
        """Log that a run driven by somebody else ended without an answer."""
        stopped = isinstance(error, asyncio.CancelledError)
        known = error if isinstance(error, TenutoError) else None
        self._ended("stopped" if stopped else "failed", known or (None if stopped else _broken(error)))

    def _ended(self, reason: str, error: TenutoError | None) -> TurnEnded:
        """Log how the turn ended; what had come of an unfinished answer is kept."""
        usage = self.spent.as_json()
        if reason != "answered":
            event: JsonObject = {"type": TURN_ENDED, "reason": reason, "usage": usage}
            if error is not None:
                event["error"] = error.as_json()
            partial = "".join(self._partial)
            if partial:
                parts = [{"part_kind": "text", "content": partial}]
                message = {"kind": "response", "parts": parts, "state": "interrupted"}
                cut_off = {"type": INTERRUPTED, "reason": reason}
                self.conversation.settle_response(self.turn, self._request, message, cut_off, event)
                self.answer = partial
            else:
                self.conversation.note(self.turn, event)
        return self._told(reason, error)

    def _told(self, reason: str, error: TenutoError | None) -> TurnEnded:
        """Tell the readers how the turn ended."""
        usage = self.spent.as_json()
        ended = TurnEnded(
            self.turn,
            cast("Any", reason),
            self.answer,
            usage,
            error.as_json() if error else None,
            self._not_saved,
        )
        self._emit(ended)
        return ended

    def _convert(self, request: Request) -> list[ModelMessage]:
        """The request as Pydantic AI messages; each is converted once and kept while it is in the window."""
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        mark = request.head if wants_cache_mark(self.rules.model) and request.head else -1
        converted: dict[int, tuple[JsonObject, ModelMessage]] = {}
        messages: list[ModelMessage] = []
        for at, message in enumerate(request.messages):
            known = self._converted.get(id(message))
            if known is None or at == mark:
                ready = self.conversation.log.blobs.inflate(message) if has_binary(message) else message
                if at == mark:
                    ready = with_cache_mark(ready)
                known = (message, ModelMessagesTypeAdapter.validate_python([ready])[0])
            converted[id(message)] = known
            messages.append(known[1])
        self._converted = converted
        return messages


def _broken(error: BaseException) -> ModelFailed:
    return ModelFailed(f"the run ended: {_short(error)}", hint="see the program's own log")


def with_cache_mark(question: JsonObject) -> JsonObject:
    """The question's message with a cache mark in front: it closes the stable prefix."""
    parts = list(question["parts"])
    for at, part in enumerate(parts):
        if part.get("part_kind") == "user-prompt":
            content = part["content"]
            items = [content] if isinstance(content, str) else list(content)
            parts[at] = {**part, "content": [{"kind": "cache-point", "ttl": "5m"}, *items]}
            break
    return {**question, "parts": parts}


def _capability(loop: TurnLoop) -> AbstractCapability[None]:
    """The hooks that put our request in the place of the run's own history, and log each response."""
    from pydantic_ai.capabilities import AbstractCapability

    class FromTheLog(AbstractCapability[None]):
        async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
            request_context.messages = await loop.next_request(request_context.messages)
            return request_context

        async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
            loop.settle_response(response)
            return response

    return FromTheLog()


def _as_failure(error: Exception, model: str) -> ModelFailed:
    from pydantic_ai.exceptions import ModelHTTPError, UsageLimitExceeded

    if isinstance(error, ModelHTTPError):
        hints = {
            401: "check the key",
            403: "check the key's rights",
            404: "check the model's name",
            429: "the provider's limit is reached; try later",
        }
        hint = hints.get(error.status_code, "try again, or choose another model with /model")
        return ModelFailed(f"{model} answered {error.status_code}: {_short(error.body)}", hint=hint)
    if isinstance(error, UsageLimitExceeded):
        return ModelFailed(
            f"the turn was ended: {_short(error)}", hint="raise agent.requests, or ask for less"
        )
    return ModelFailed(
        f"{model} failed: {_short(error)}", hint="try again, or choose another model with /model"
    )


def _short(value: object) -> str:
    text = str(value).strip()
    return " ".join(text.split())[:600] or type(value).__name__


def _dump(message: ModelMessage) -> JsonObject:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return loads(ModelMessagesTypeAdapter.dump_json([message], exclude_none=True))[0]


def _dump_parts(parts: Sequence[Any]) -> list[JsonObject]:
    from pydantic_ai.messages import ModelRequest

    return _dump(ModelRequest(parts=list(parts)))["parts"]


def _arguments(args: Any) -> JsonObject:
    if isinstance(args, dict):
        return cast("JsonObject", args)
    try:
        value = loads(args or "{}")
    except JsonError:
        return {"(not JSON)": str(args)}
    return cast("JsonObject", value) if isinstance(value, dict) else {"(value)": value}
