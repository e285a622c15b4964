"""A tap of the tests. Notes each start in `starts.ndjson`, and does as its configuration says.

With `script`, it writes the lines of that file. A line that begins with `!` is an order: `!exit N`, `!wait` (for ever, and
after SIGTERM too), `!long N` (a record of N bytes), `!stderr TEXT`, `!rest TEXT` (without a line end). With `count`, it writes
the records 0 to `count` of the stream `numbers`, from the state on, with a state after every `every` records, and a `pause` in seconds after each state.
"""
import argparse
import json
import os
import signal
import stat
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--catalog")
parser.add_argument("--state")
parser.add_argument("--discover", action="store_true")
parser.add_argument("--loud", action="store_true")
parser.add_argument("--token")
arguments = parser.parse_args()


def load(path):
    with open(path) as file:
        return json.load(file)


config = load(arguments.config)
state = load(arguments.state) if arguments.state else None


def note(**what):
    with open("starts.ndjson", "a") as file:
        file.write(json.dumps({"pid": os.getpid(), **what}) + "\n")


def schema(properties, key=("id",), stream="numbers"):
    say({"type": "SCHEMA", "stream": stream, "key_properties": list(key),
         "schema": {"type": "object", "properties": properties}})


def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


INTEGER = {"type": "integer"}

if arguments.discover:
    if config.get("discover") == "fails":
        sys.exit("CRITICAL cannot log in with " + config.get("password", ""))
    def stream(name, **metadata):
        return {"tap_stream_id": "main-" + name, "stream": name, "key_properties": ["id"],
                "schema": {"type": "object", "properties": {"id": INTEGER}},
                "metadata": [{"breadcrumb": [], "metadata": metadata}]}
    json.dump({"streams": [stream("numbers", **{"valid-replication-keys": ["id"]}), stream("others")]}, sys.stdout)
    sys.exit(0)

paths = [arguments.config, arguments.catalog, arguments.state]
note(state=state, config=config, catalog=load(arguments.catalog) if arguments.catalog else None,
     files=[path for path in paths if path], loud=arguments.loud, environment=dict(os.environ), directory=os.getcwd(),
     modes=[oct(stat.S_IMODE(os.stat(path).st_mode)) for path in paths if path]
     + [oct(stat.S_IMODE(os.stat(os.path.dirname(arguments.config)).st_mode))])

if "count" in config:
    schema({"id": INTEGER})
    first = state["next"] if state else 0
    for number in range(first, config["count"]):
        say({"type": "RECORD", "stream": "numbers", "record": {"id": number}})
        if (number + 1) % config["every"] == 0:
            say({"type": "STATE", "value": {"next": number + 1}})
            time.sleep(config.get("pause", 0))
    sys.exit(0)

for line in open(config["script"]):
    order, _, rest = line.rstrip("\n").partition(" ")
    if order == "!exit":
        sys.exit(int(rest))
    elif order == "!wait":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(waits=True)
        while True:
            time.sleep(60)
    elif order == "!long":
        say({"type": "RECORD", "stream": "numbers", "record": {"id": 1, "text": "x" * int(rest)}})
    elif order == "!stderr":
        print(rest, file=sys.stderr, flush=True)
    elif order == "!rest":
        sys.stdout.write(rest)
    else:
        sys.stdout.write(line)
    sys.stdout.flush()
