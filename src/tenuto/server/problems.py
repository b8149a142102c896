"""Errors on the wire: problem details (RFC 9457) with Tenuto's stable code and next step."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from tenuto.codec import JsonObject
from tenuto.errors import TenutoError

STATUS = {
    "invalid_id": 422,
    "usage": 422,
    "fact_refused": 422,
    "edit_refused": 409,
    "archive_refused": 422,
    "not_found": 404,
    "result_not_found": 404,
    "forbidden": 403,
    "thread_busy": 409,
    "thread_cleared": 409,
    "late_write": 409,
    "question_too_large": 413,
    "result_too_large": 413,
    "disk_full": 507,
    "sandbox_unavailable": 503,
    "sandbox_busy": 503,
    "model_failed": 502,
    "tool_server_failed": 502,
}
"""HTTP status of each code; 500 for the others."""

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str = Field(examples=["urn:tenuto:error:not_found"])
    title: str = Field(examples=["not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no thread 'october'"])
    code: str = Field(examples=["not_found"], description="Stable: " + ", ".join(sorted(STATUS)) + ".")
    hint: str = Field(examples=["list the threads"], description="What to do next.")
    details: dict[str, Any] = {}


def problem(status: int, code: str, detail: str, *, hint: str = "", details: object = None) -> JsonObject:
    """The body: `type` names the code, `hint` says what to do next."""
    return {
        "type": f"urn:tenuto:error:{code}",
        "title": code.replace("_", " "),
        "status": status,
        "detail": detail,
        "code": code,
        "hint": hint,
        "details": details or {},
    }


def of(error: TenutoError) -> JsonObject:
    """An error of Tenuto's as problem details."""
    status = STATUS.get(error.code, 500)
    return problem(status, error.code, error.message, hint=error.hint, details=error.details)


def _response(body: JsonObject) -> JSONResponse:
    return JSONResponse(body, status_code=body["status"], media_type=MEDIA_TYPE)


async def on_tenuto(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, TenutoError)
    return _response(of(error))


async def on_http(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}.get(error.status_code, "refused")
    return _response(problem(error.status_code, code, str(error.detail)))


async def on_invalid(_: Request, error: Exception) -> JSONResponse:
    """What the request had wrong, without echoing the values: they may be secrets."""
    assert isinstance(error, RequestValidationError)
    wrong = [{"where": [str(step) for step in one["loc"]], "why": one["msg"]} for one in error.errors()]
    first = f"{'.'.join(wrong[0]['where'])}: {wrong[0]['why']}" if wrong else "the request is not valid"
    return _response(problem(422, "invalid_request", first, hint="see /docs", details={"fields": wrong}))


async def on_crash(_: Request, error: Exception) -> JSONResponse:
    return _response(
        problem(500, "internal_error", type(error).__name__, hint="see the server's own output for the cause")
    )
