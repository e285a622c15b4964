"""Looks after a running service with the official SDK, over one transport: PROGRAM WAY, in the directory of the service.

WAY is `stdio`, which starts PROGRAM, or the address of a server that asks for the token of `ANABRANCH_MCP_TOKEN`. The
service has the pipeline `orders`, which follows in.txt into out.ndjson and refuses lines that end in 7.
"""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

MUTATIONS = {"apply", "start", "stop", "dead_letters_replay", "dead_letters_purge", "positions_reset"}
PIPELINE = Path("pipelines/orders.yaml")
PATIENCE = 120


def transport(program: str, way: str, mutations: bool):
    if way == "stdio":
        flags = ["--allow-mutations"] if mutations else []
        environment = {name: value for name, value in os.environ.items() if name.startswith(("ANABRANCH_", "PATH"))}
        return StdioServerParameters(command=program, args=["mcp", *flags], env=environment)
    token = os.environ["ANABRANCH_MCP_TOKEN"]
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    return streamable_http_client(way, http_client=http)


def asking(client: Client):
    async def call(tool: str, ok: bool = True, /, **arguments):
        told = await client.call_tool(tool, arguments)
        envelope = json.loads(told.content[0].text)
        assert told.structured_content == envelope, told
        assert envelope["ok"] is ok and told.is_error is not ok, (tool, envelope)
        return envelope["result"] if ok else envelope["error"] or envelope["result"]

    return call


async def until(what: str, holds):
    async with asyncio.timeout(PATIENCE):
        while not await holds():
            await asyncio.sleep(0.05)
    print("seen:", what)


async def feed():
    """Lines without an end, so that there is always something to see."""
    with open("in.txt", "a") as file:
        for number in range(1, 1 << 30):
            file.write(f"fed {number}0\n")
            file.flush()
            await asyncio.sleep(0.02)


async def look(client: Client):
    """What needs no permission."""
    call = asking(client)
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert not names & MUTATIONS, names

    async def delivered() -> int:
        (listed,) = [it for it in (await call("pipelines_list"))["pipelines"] if it["id"] == "orders"]
        assert listed["state"] in {"starting", "running", "idle"}, listed
        return listed["delivered"] or 0

    feeding = asyncio.create_task(feed())
    try:
        before = await delivered()

        async def more() -> bool:
            return await delivered() > before

        await until("numbers that grow", more)
        described = json.dumps(await call("pipelines_describe", id="orders"))
        assert "out.ndjson" in described and "refuse" in described, described
        seen = await call(
            "inspect", id="orders", at="tag", side="after", where='{{ eq .Metadata.seen "yes" }}', records=3,
            timeoutSeconds=60,
        )
        assert len(seen["records"]) == 3, seen
        assert all(record["metadata"]["seen"] == "yes" for record in seen["records"]), seen
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding
    found = await call("dead_letters_list", id="orders", limit=2)
    assert found["count"] == 3 and [it["number"] for it in found["letters"]] == [3, 2], found
    letter = await call("dead_letters_show", id="orders", number=1)
    assert letter["error"]["message"] == "refused line 7" and letter["node"] == "refuse", letter
    assert (await call("dead_letters_show", False, id="orders", number=99))["code"] == "dead_letter.not_found"
    positions = await call("positions_show", id="orders")
    assert positions["positions"], positions
    assert (await call("pipelines_describe", False, id="nothing"))["code"] == "pipeline.not_found"

    config = PIPELINE.read_text()
    plan = await call("plan", config=config)
    assert plan["plans"], plan
    assert (await call("plan", id="orders"))["plans"], "a pipeline of the directory of the service"
    tests = """
tests:
  - name: one is tagged, one is refused
    input: [line 1, line 7]
    expect:
      records: [ { after: line 1, metadata: { seen: "yes" } } ]
      dead-letters: [ { record: 2, step: refuse, error: refused } ]
"""
    tried = await call("test", config=config, tests=tests)
    assert tried, tried
    assert await call("test", False, config=config, tests=tests.replace('seen: "yes"', 'seen: "no"'))
    checked = json.dumps(await call("doctor"))
    assert "service" in checked, checked
    try:
        told = await client.call_tool("start", {"id": "orders"})
        raise AssertionError(f"start is offered: {told}")
    except Exception as error:  # noqa: BLE001: the class differs by transport
        assert "there is no tool" in str(error), error
    print("looked")


async def change(client: Client):
    """What needs a permission."""
    call = asking(client)
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert names >= MUTATIONS, names
    config = PIPELINE.read_text()

    async def state(word: str) -> bool:
        return word in json.dumps((await call("pipelines_list"))["pipelines"])

    await call("stop", id="orders")
    await until("that it stopped", lambda: state('"stopped"'))
    assert (await call("stop", False, id="orders"))["code"] == "pipeline.not_running"
    await call("start", id="orders")

    async def runs() -> bool:
        return await state('"running"') or await state('"idle"')

    await until("that it runs", runs)

    again = await call("dead_letters_replay", id="orders", numbers=[1])
    assert again["failedAgain"] == 1, again
    mended = config.replace('hasSuffix "7"', 'hasSuffix "line 27"')
    assert mended != config
    refused = await call("apply", False, config=mended, hash="0" * 64)
    assert refused["code"] == "pipelines.plan_stale", refused
    preview = await call("apply_preview", config=mended)
    assert [it["id"] for it in preview["changes"]] == ["orders:refuse"], preview
    await call("apply", config=mended, hash=preview["hash"])
    outcome = await call("dead_letters_replay", id="orders", numbers=[1, 2])
    assert outcome["delivered"] == 2, outcome
    assert (await call("dead_letters_purge", id="orders", all=True))["purged"] == 1
    assert (await call("dead_letters_list", id="orders"))["count"] == 0
    assert (await call("dead_letters_purge", False, id="orders"))["code"] == "api.malformed_request"
    preview = await call("apply_preview", config=config)
    await call("apply", config=config, hash=preview["hash"])
    assert (await call("positions_reset", id="orders"))["done"] is False
    assert (await call("positions_reset", id="orders", yes=True))["done"] is True
    print("changed")


async def main(program: str, way: str, mutations: str) -> None:
    async with Client(transport(program, way, mutations == "mutations"), read_timeout_seconds=PATIENCE) as client:
        await (change if mutations == "mutations" else look)(client)


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 220))
