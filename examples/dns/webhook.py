#!/usr/bin/env python3
"""A DNS-01 provider as a web service: docs/certificates.md, "A provider of your own".

It keeps the TXT records of one zone in memory; replace `records` by calls of your provider. Behind TLS:
`webhook: {url: "https://dns.corp.internal/acme", tokenFile: /run/secrets/hook}`.

    webhook.py ZONE TOKEN_FILE [PORT]
"""

import http.server
import json
import sys

ZONE = sys.argv[1]
TOKEN = open(sys.argv[2], encoding="utf-8").read().strip()
records = set()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"message": "this token is not the service's"})
        request = json.loads(body)
        name = request["name"]
        if name != ZONE and not name.endswith("." + ZONE):
            return self.answer(404, {"message": f"{name} is not in {ZONE}"})
        if request["action"] == "zone":
            return self.answer(200, {"zone": ZONE})
        record = (name, request["value"])
        if request["action"] == "present":
            records.add(record)
        else:
            records.discard(record)
        print(sorted(records), file=sys.stderr, flush=True)
        return self.answer(200, {})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3]) if len(sys.argv) > 3 else 0), Handler)
print(f"listening on {server.server_address[1]}", flush=True)
server.serve_forever()
