"""The JSON API as OpenAPI 3.1 describes it, made from the table of operations."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from tocsin.broker.errors import CODES
from tocsin.workers.mcp.gate import API, BEFORE
from tocsin.workers.operations import OPERATIONS, WAITS, Operation

_REF = "#/components/schemas/{model}"

_ABOUT = """Agents of a herd, by JSON over HTTP. Each operation is a POST of its arguments as one
JSON object, with `Content-Type: application/json` and `Authorization: Bearer herd/agent:token`.

Durations are text of ISO 8601 (`PT90S`) or seconds, times have a zone. A call whose answer was
lost is made again with the same `Idempotency-Key`, and so has one effect. `ask`, `ask_wait` and
`wait` answer 202 and what is pending after 25 seconds at most: go on with `ask_wait`, or wait
again; a client that is gone ends nothing."""

_BEYOND = {"internal", "too_often", *(code for code, _ in BEFORE.values())}
"""Codes of what is no call of an operation, or a defect."""

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "detail", "retryable"],
            "properties": {
                "code": {
                    "type": "string",
                    "description": "Stable.",
                    "examples": sorted({*CODES, *_BEYOND}),
                },
                "operation": {"type": "string"},
                "detail": {"type": "string", "description": "What was refused, and which rule."},
                "retryable": {
                    "type": "boolean",
                    "description": "Whether the same call may succeed later.",
                },
                "next": {"type": "string", "description": "What to do."},
                "message_id": {"type": "string", "description": "The ask that ran out."},
                "reason": {"type": "string"},
                "limit": {"type": "string"},
            },
        }
    },
}

_SEAT: dict[str, Any] = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {
            "type": "object",
            "properties": {
                name: {"type": kind}
                for name, kind in {
                    "fleet": "string",
                    "herd": "string",
                    "agent": "string",
                    "generation": "integer",
                    "instance": "string",
                    "now": "string",
                }.items()
            },
        }
    },
}

_BELL: dict[str, Any] = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {
            "type": "object",
            "required": ["rang"],
            "properties": {"rang": {"type": "boolean"}},
        }
    },
}

_HEADERS = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "Any text made anew for each call, and sent again when it is repeated. "
        "Nobody else may be able to guess it.",
        "schema": {"type": "string"},
    },
    {
        "name": "Tocsin-Presence",
        "in": "header",
        "description": "`none`: this call is no sign that a process of the agent runs.",
        "schema": {"type": "string", "enum": ["none"]},
    },
]
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "description": "`wait=10`: seconds that the call may last, instead of 25.",
    "schema": {"type": "string"},
}


def document() -> dict[str, Any]:
    """The whole document."""
    shapes = [(each.name, "serialization", each.adapter) for each in OPERATIONS.values()]
    asked = [
        (each.name, "validation", TypeAdapter(each.widest.arguments))
        for each in OPERATIONS.values()
    ]
    schemas, shared = TypeAdapter.json_schemas([*shapes, *asked], ref_template=_REF)  # type: ignore[list-item]
    paths = {f"{API}{each.name}": _path(each, schemas) for each in OPERATIONS.values()}
    paths[f"{API}seat"] = {
        "get": {
            "operationId": "seat",
            "summary": "Whom the token proves, of which fleet, and what time it is there.",
            "responses": _responses(_SEAT),
        }
    }
    paths[f"{API}bell"] = {
        "get": {
            "operationId": "bell",
            "summary": "Whether mail arrived for the agent while this call lasted, or may have.",
            "parameters": [_PREFER],
            "responses": _responses(_BELL),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tocsin", "version": version("tocsin"), "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": {**shared.get("$defs", {}), "Error": _ERROR},
            "securitySchemes": {
                "agent": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "herd/agent:token",
                }
            },
        },
        "security": [{"agent": []}],
    }


def _path(operation: Operation, schemas: Any) -> dict[str, Any]:
    name, waits = operation.name, operation.name in WAITS
    whose = " For the parent." if operation.child is None else ""
    whose = " For a child." if operation.parent is None else whose
    result = {
        "type": "object",
        "required": ["result"],
        "properties": {"result": schemas[name, "serialization"]},
    }
    return {
        "post": {
            "operationId": name,
            "summary": operation.summary,
            "description": operation.text + whose,
            "parameters": [*_HEADERS, *([_PREFER] if waits else [])],
            "requestBody": {
                "required": bool(operation.widest.required),
                "content": {"application/json": {"schema": schemas[name, "validation"]}},
            },
            "responses": _responses(result, pending=waits),
        }
    }


def _responses(result: dict[str, Any], *, pending: bool = False) -> dict[str, Any]:
    def said(description: str, schema: dict[str, Any]) -> dict[str, Any]:
        content = {"application/json": {"schema": schema}}
        return {"description": description, "content": content}

    waiting = {
        "type": "object",
        "required": ["pending"],
        "properties": {
            "pending": {
                "type": "object",
                "properties": {
                    "message_id": {"type": "string"},
                    "task_ids": {"type": "array", "items": {"type": "string"}},
                },
            },
            "result": {"description": "Of wait: what has settled so far."},
        },
    }
    error = {"$ref": _REF.format(model="Error")}
    return {
        "200": said("Done.", result),
        **({"202": said("It goes on; come back.", waiting)} if pending else {}),
        "404": said("There is no such path, herd, agent, task or message.", error),
        "405": said("The path takes another method.", error),
        "413": said("The body, or a text in it, is too long.", error),
        "default": said("Refused.", error),
    }
