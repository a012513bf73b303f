"""A receiver for Berth's webhooks. It accepts only events with a valid signature."""

import hashlib
import hmac
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 300  # seconds between the sender's clock and ours
MAX_BODY = 1 << 20
SECRET = os.environ.get("WEBHOOK_SECRET", "")


def verify(header, body):
    """Check a header of the form t=<unix seconds>,v1=<hex>."""
    fields = dict(part.partition("=")[::2] for part in header.split(","))
    t, given = fields.get("t", ""), fields.get("v1", "")
    if not t.isdecimal() or abs(time.time() - int(t)) > TOLERANCE:
        return False
    expected = hmac.new(SECRET.encode(), f"{t}.".encode() + body, hashlib.sha256)
    return hmac.compare_digest(given.encode(), expected.hexdigest().encode())


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(self.receive())
        self.end_headers()

    def receive(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > MAX_BODY:
            return 413
        body = self.rfile.read(length)  # raw, because the signature covers these bytes
        if not verify(self.headers.get("X-Service-Signature", ""), body):
            return 401
        event = json.loads(body)
        print(f"accepted {event['id']} {event['type']} of {event['stack_id']}", flush=True)
        return 204


if not SECRET:
    sys.exit("set WEBHOOK_SECRET to the webhook_secret that Berth returned")
ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Receiver).serve_forever()
