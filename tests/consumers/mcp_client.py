"""Talks to `anabranch mcp` with the official SDK: PROGRAM FILE."""

import asyncio
import json
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(program: str, path: str) -> None:
    with open(path) as file:
        config = file.read()
    parameters = StdioServerParameters(command=program, args=["mcp"])
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}
        assert {"validate", "plan", "dry_run"} <= tools, tools
        told = await session.call_tool("validate", {"config": config})
        envelope = json.loads(told.content[0].text)
        assert envelope["ok"] is True, envelope
        refused = await session.call_tool("validate", {"config": "pipelines: 1"})
        assert json.loads(refused.content[0].text)["ok"] is False
        print("validated")


asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 220))
