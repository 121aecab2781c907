"""The JSON API as HTTP: who gets in, what is refused, what a repeated call does, and OpenAPI."""

from __future__ import annotations

import asyncio
import json
import logging
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import httpx2
import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate

from tests.requirements import proves
from tests.waiting import wait_until_async
from tests.workers.mcp.desk import bearer, serving
from tocsin.broker import AsyncBroker, AsyncChild, AsyncParent
from tocsin.broker.errors import CODES
from tocsin.workers.mcp.api import STATUS
from tocsin.workers.operations import ELSEWHERE, OPERATIONS


class Client:
    """An HTTP client that speaks for an agent."""

    def __init__(self, base: str, http: httpx2.AsyncClient) -> None:
        self.base, self.http = base, http

    async def post(self, name, agent, /, key=None, wait=None, **given):
        headers = bearer(agent)
        headers |= {"Idempotency-Key": key} if key else {}
        headers |= {"Prefer": f"wait={wait}"} if wait is not None else {}
        return await self.http.post(f"{self.base}/api/v1/{name}", json=given, headers=headers)

    async def good(self, name, agent, /, **given):
        answer = await self.post(name, agent, **given)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    async def refused(self, name, agent, /, **given):
        answer = await self.post(name, agent, **given)
        error = answer.json()["error"]
        assert answer.status_code == STATUS.get(error["code"], 409)
        assert error["detail"] and error["next"] and isinstance(error["retryable"], bool)
        return error


@pytest.fixture
async def api(broker):
    async with serving(broker) as base, httpx2.AsyncClient(timeout=60) as http:
        yield Client(base, http)


async def test_a_task_from_delegate_to_done(api, herd):
    """A parent and a child do a whole task by POSTs of JSON."""
    task = await api.good(
        "delegate", herd.parent, agent="scout", description="Find it", deadline="PT20M", watch=True
    )
    assert (task["state"], task["watched"]) == ("created", True)
    mail = await api.good("inbox", herd.scout)
    assert [each["task_id"] for each in mail["envelopes"]] == [task["id"]]
    assert await api.good("ack", herd.scout, messages=[mail["envelopes"][0]["message_id"]]) == 1
    assert await api.good("progress", herd.scout, text="half", fraction=0.5) is None
    ended = await api.good("done", herd.scout, task=task["id"], summary="JWT")
    assert (ended["status"], ended["summary"]) == ("completed", "JWT")
    waited = await api.good("wait", herd.parent, task_ids=[task["id"]], timeout=0)
    assert waited == [ended]
    record = await api.good(
        "set_settings", herd.parent, settings={"reply_timeout": "7m", "stale_wait_threshold": "off"}
    )
    assert record["settings"]["reply_timeout"] == "7m"
    assert record["settings"]["stale_wait_threshold"] == 0


@proves("P12")
@pytest.mark.parametrize("name", ["message", "delegate", "progress", "register", "reply", "set"])
async def test_a_repeated_post_is_one(api, herd, name):
    """The same call with the same `Idempotency-Key` has one effect and one answer (case 1)."""
    asked = await herd.scout.message("planner", "Which?", expects_reply=True)
    calls: dict[str, Any] = {
        "message": ("message", herd.scout, {"to": "planner", "body": "x"}),
        "delegate": ("delegate", herd.parent, {"agent": "scout", "description": "x"}),
        "progress": ("progress", herd.scout, {"text": "x"}),
        "register": ("register", herd.parent, {"agent": "tester"}),
        "reply": ("reply", herd.planner, {"to": asked.message_id, "body": "x"}),
        "set": ("set_settings", herd.parent, {"settings": {"max_open_tasks": 3}}),
    }
    operation, agent, given = calls[name]
    before = [each.event for each in await herd.parent.journal(limit=1000)]
    first = await api.good(operation, agent, key="one", **given)
    lines = [each.event for each in await herd.parent.journal(limit=1000)]
    again = await api.good(operation, agent, key="one", **given)
    assert [each.event for each in await herd.parent.journal(limit=1000)] == lines != before
    if isinstance(first, dict):
        first.pop("duplicate", None), again.pop("duplicate", None)
    assert first == again
    if name == "register":  # the same token, which nobody can foresee who has only the key
        other = await api.good("register", herd.parent, key="two", agent="other")
        assert other["token"] != first["token"]


@proves("P13")
async def test_a_child_reaches_only_its_own(api, herd):
    """With a child's token: no parent's operation, no other's task, request or mail (case 29)."""
    task = await herd.parent.delegate("planner", "Plan")
    await herd.planner.inbox()
    asked = await herd.planner.message("parent", "Which?", expects_reply=True)
    calls: dict[str, dict[str, Any]] = {
        "delegate": {"agent": "planner", "description": "x"},
        "close_herd": {},
        "set_settings": {"settings": {}},
        "rotate": {"agent": "planner"},
        "done": {"task": task.id},
        "reply": {"to": asked.message_id, "body": "x"},
        "ack": {"messages": [asked.message_id]},
    }
    for name, given in calls.items():
        error = await api.refused(name, herd.scout, **given)
        codes = ("forbidden", "unknown_task", "unknown_message", "unauthorized", "wrong_state")
        assert error["code"] in codes, (name, error)
    assert (await api.good("inbox", herd.scout))["envelopes"] == []
    stranger = bearer(herd.scout) | {
        "Authorization": f"Bearer {herd.name}/planner:{herd.scout.token}"
    }
    for name in ("inbox", "roster", "look"):
        if name in OPERATIONS:
            refused = await api.http.post(f"{api.base}/api/v1/{name}", json={}, headers=stranger)
            assert refused.status_code == 401
            assert refused.json()["error"]["code"] == "unauthorized"


async def test_what_the_gate_refuses(herd, broker):
    """No token, foreign Host and Origin, text/plain, a huge or broken body, too often (case 30)."""
    async with serving(broker, burst=40, rate=1) as base, httpx2.AsyncClient() as http:
        url, mine = f"{base}/api/v1/inbox", bearer(herd.scout)
        nobody = await http.post(url, json={})
        assert nobody.status_code == 401 and nobody.json()["error"]["code"] == "unauthorized"
        foreign = await http.post(url, json={}, headers=mine | {"host": "evil.example"})
        assert foreign.status_code == 421
        page = await http.post(url, json={}, headers=mine | {"origin": "https://evil.example"})
        assert page.status_code == 403
        plain = await http.post(url, content="{}", headers=mine | {"content-type": "text/plain"})
        assert plain.status_code == 400 and "Content-Type" in plain.json()["error"]["detail"]
        to_json = mine | {"content-type": "application/json"}
        for broken in ("{broken", "[" * 5_000, "[]", "null", "\x00"):
            refused = await http.post(url, content=broken, headers=to_json)
            assert refused.status_code == 400, broken
            assert refused.json()["error"]["code"] == "invalid_input"
        huge = await http.post(url, content=b"x" * 1_100_000, headers=to_json)
        assert huge.status_code == 413
        assert (await http.get(url, headers=mine)).status_code == 405
        codes = [(await http.post(url, json={}, headers=mine)) for _ in range(50)]
        assert codes[-1].status_code == 429 and int(codes[-1].headers["retry-after"]) >= 1
        assert codes[-1].json()["error"]["retryable"]


async def test_what_is_no_call_is_refused_as_calls_are(api, herd):
    """Another path, method, origin or name, and too long a body: JSON, with what to do."""
    document = (await api.http.get(f"{api.base}/api/v1/openapi.json")).json()
    known = document["components"]["schemas"]["Error"]
    codes = known["properties"]["error"]["properties"]["code"]["examples"]
    mine, url = bearer(herd.scout), f"{api.base}/api/v1"
    huge = {"content": b"x" * 1_100_000}
    for method, path, status, code, word, more in (
        ("GET", "/inbox", 405, "method", "POST", {}),
        ("DELETE", "/seat", 405, "method", "openapi.json", {}),
        ("POST", "/inbox/now", 404, "not_found", "openapi.json", {}),
        ("GET", "/", 404, "not_found", "/api/v1/NAME", {}),
        ("POST", "/inbox", 413, "too_large", "1,048,576", huge),
        ("POST", "/openapi.json", 400, "invalid_input", "there are", {}),
        ("POST", "/inbox", 421, "forbidden", "--allow-host", {"host": "evil.example"}),
        ("POST", "/inbox", 403, "forbidden", "--allow-origin", {"origin": "https://evil.example"}),
    ):
        content = more.get("content")
        headers = mine | {name: text for name, text in more.items() if name != "content"}
        answer = await api.http.request(method, f"{url}{path}", content=content, headers=headers)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (status, code), answer.text
        assert word in error["detail"] and error["retryable"] is False and code in codes
        OAS31Validator(known).validate(answer.json())
        assert ("allow" in answer.headers) == (status == 405)
    head = await api.http.head(f"{url}/inbox", headers=mine)
    assert (head.status_code, head.content) == (405, b"")
    task = await api.refused("task", herd.parent, task="task_01")
    assert task["code"] == "unknown_task"


async def test_what_is_wrong_is_said(api, herd):
    """Unknown operations and arguments, wrong types, ids of the wrong kind, what cannot cross."""
    for name, given, word in (
        ("delegte", {}, "there are"),
        ("next_turn", {}, "inbox"),
        ("message", {"to": "planner"}, "body is missing"),
        ("message", {"to": "planner", "body": "x", "taks": "t"}, "did you mean task"),
        ("message", {"to": "planner", "body": 7}, "body"),
        ("message", {"to": "planner", "body": "x", "delivery": "soon"}, "'follow_up', 'steer'"),
        ("message", {"to": "planner", "body": "x", "reply_within": "soon"}, "reply_within"),
        ("ask", {"to": "planner", "body": "x", "probe": "x"}, "tocsin probe"),
        ("ask", {"to": "planner", "body": "x"}, "Idempotency-Key"),
        ("task", {"task": "msg_01"}, "a task is meant"),
    ):
        error = await api.refused(name, herd.scout, **given)
        assert error["code"] == "invalid_input" and word in error["detail"], (name, error)
    error = await api.refused(
        "register", herd.parent, agent="x", runner={"command": ["rm", "-rf", "/"]}
    )
    assert "operator" in error["detail"]
    naive = await api.refused(
        "delegate", herd.parent, agent="scout", description="x", deadline="2030-01-01T00:00:00"
    )
    assert "no time zone" in naive["detail"]


async def test_an_ask_goes_on_from_server_to_server(herd, broker, url, fleet_name):
    """Pending after the time a client gives, it is joined by its key at another, and answered."""
    async with (
        AsyncBroker.connect(url, fleet=fleet_name) as second,
        serving(broker) as one,
        serving(second) as two,
        httpx2.AsyncClient(timeout=60) as http,
    ):
        question = {"to": "planner", "body": "Which?", "key": "k"}
        first = await Client(one, http).post("ask", herd.scout, wait=0.2, **question)
        assert first.status_code == 202
        ask = first.json()["pending"]["message_id"]
        joined = asyncio.create_task(Client(two, http).post("ask", herd.scout, wait=20, **question))
        await wait_until_async(lambda: not joined.done(), "the second call")
        await herd.planner.reply(ask, "Exponential")
        answer = await joined
        assert answer.json()["result"]["body"] == "Exponential"
        again = await Client(one, http).post("ask_wait", herd.scout, message=ask)
        assert again.json()["result"]["body"] == "Exponential"


async def test_a_client_that_goes_ends_nothing(api, herd):
    """Its question stays open, and the answer that comes then is mail (case 27)."""
    with pytest.raises(httpx2.ReadTimeout):
        await api.http.post(
            f"{api.base}/api/v1/ask",
            json={"to": "planner", "body": "Which?", "key": "k"},
            headers=bearer(herd.scout),
            timeout=0.5,
        )
    [question] = await herd.planner.inbox()
    await herd.planner.reply(question, "Exponential")

    assert (await api.good("ask_wait", herd.scout, message=question.message_id))["body"]


async def test_nothing_secret_is_logged(api, herd, caplog):
    """Neither a call nor its refusal, nor a defect, leaves a token in the log (case 31)."""
    caplog.set_level(logging.DEBUG)
    await api.good("rotate", herd.parent, agent="scout")
    refused = await api.post("inbox", herd.scout)
    assert refused.status_code == 401 and herd.scout.token not in refused.text
    own = "\n".join(each.getMessage() for each in caplog.records if each.name.startswith("tocsin"))
    assert herd.parent.token not in own and herd.scout.token not in own


async def test_a_bell_lasts_as_long_as_it_is_told(api, herd):
    """Nothing arrived: it says so in time. A stranger hears none, and a client may go."""
    headers = bearer(herd.scout) | {"Prefer": "wait=0.2"}
    url = f"{api.base}/api/v1/bell"
    rings = [(await api.http.get(url, headers=headers)).json()["result"]["rang"] for _ in range(3)]
    assert rings[-1] is False
    asked = asyncio.create_task(api.http.get(url, headers=bearer(herd.scout)))
    while not asked.done():
        await herd.parent.message("scout", "hello")
        await asyncio.wait({asked}, timeout=0.2)
    assert (await asked).json() == {"result": {"rang": True}}
    wrong = bearer(herd.scout) | {"Authorization": f"Bearer {herd.name}/scout:tok_{'a' * 43}"}
    assert (await api.http.get(url, headers=wrong)).status_code == 401


async def test_the_document_is_true(api, herd):
    """OpenAPI 3.1, valid; every operation is in it, and answers fit their schemas."""
    answer = await api.http.get(f"{api.base}/api/v1/openapi.json")
    document = answer.json()
    validate(document)
    paths = {name.removeprefix("/api/v1/") for name in document["paths"]}
    assert paths == {*OPERATIONS, "seat", "bell"}
    await herd.scout.message("parent", "Hello")
    seat = (await api.http.get(f"{api.base}/api/v1/seat", headers=bearer(herd.scout))).json()
    assert (seat["result"]["agent"], seat["result"]["fleet"]) == ("scout", herd.parent.broker.name)
    for name, given in {
        "roster": {}, "inbox": {}, "tasks": {}, "journal": {}, "herd_record": {}, "plans": {},
        "dead_letters": {}, "why": {"about": "scout"},
    }.items():  # fmt: skip
        found = await api.post(name, herd.parent, **given)
        said = document["paths"][f"/api/v1/{name}"]["post"]["responses"]["200"]
        schema = said["content"]["application/json"]["schema"]
        OAS31Validator(schema | {"components": document["components"]}).validate(found.json())
    error = (await api.post("task", herd.parent, task="task_01")).json()
    OAS31Validator(document["components"]["schemas"]["Error"]).validate(error)


def test_the_table_names_every_public_method():
    """What an agent can do is an operation, or there is a reason that it is none."""
    for kind in (AsyncParent, AsyncChild):
        for name in dir(kind):
            method = getattr(kind, name)
            if not name.startswith("_") and (
                iscoroutinefunction(method) or isasyncgenfunction(method)
            ):
                assert (name in OPERATIONS) != (name in ELSEWHERE), name
    assert set(STATUS) <= set(CODES)
    assert json.dumps({name: each.summary for name, each in OPERATIONS.items()})
    assert all(each.summary.endswith((".", ":")) for each in OPERATIONS.values())
