"""Two tiny services of the shapes that the pipeline calls.

POST /unstructured/partition  {"data": base64 of a document}           -> {"chunks": [text, ...]}
POST /api/embed               {"input": [text, ...], "model": name}    -> {"embeddings": [[number, ...], ...]}

The chunks are the paragraphs of the document; a vector is drawn from the hash of its text, so that the same text has
the same vector on every machine. Usage: services.py PARTITION_ADDRESS EMBED_ADDRESS
"""

import base64
import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIMENSIONS = 8


def chunks(document: bytes) -> list[str]:
    paragraphs = document.decode().split("\n\n")
    return [paragraph.strip() for paragraph in paragraphs if paragraph.strip()]


def vector(text: str) -> list[float]:
    return [byte / 256 for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]


def partition(request: dict) -> dict:
    return {"chunks": chunks(base64.b64decode(request["data"], validate=True))}


def embed(request: dict) -> dict:
    return {"model": request["model"], "embeddings": [vector(text) for text in request["input"]]}


ANSWERS = {"/unstructured/partition": partition, "/api/embed": embed}


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            status, answer = 200, ANSWERS[self.path](json.loads(body))
        except Exception as error:
            status, answer = 400, {"error": f"{type(error).__name__}: {error}"}
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def listen(address: str) -> ThreadingHTTPServer:
    host, port = address.rsplit(":", 1)
    return ThreadingHTTPServer((host, int(port)), Service)


if __name__ == "__main__":
    servers = [listen(address) for address in sys.argv[1:]]
    threads = [threading.Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
