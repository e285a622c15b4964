"""A server that gives tokens for OAUTHBEARER, as OpenID Connect has it (grant client_credentials, over TLS).

tokens.py CERTIFICATE KEY CLIENT SECRET SECONDS prints its port, and a line with the status for each request. The tokens have
no signature and are valid for SECONDS.
"""

import base64
import http.server
import json
import ssl
import sys
import threading
import time
import urllib.parse

certificate, key, client, secret, seconds = sys.argv[1:]


def coded(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        form = {name: values[0] for name, values in urllib.parse.parse_qs(body).items()}
        basic = self.headers.get("authorization", "").removeprefix("Basic ")
        given = base64.b64decode(basic).decode().split(":", 1) if basic else [form.get("client_id"), form.get("client_secret")]
        given = [urllib.parse.unquote(part or "") for part in given]
        if given != [client, secret] or form.get("grant_type") != "client_credentials":
            return self.answer(401, {"error": "invalid_client"})
        now = time.time()
        claims = {"sub": client, "iat": now, "exp": now + float(seconds), "scope": form.get("scope", "")}
        token = ".".join([coded(b'{"alg":"none"}'), coded(json.dumps(claims).encode()), ""])
        self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": int(seconds)})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        print(status, flush=True)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
# Until the tests end.
sys.stdin.read()
