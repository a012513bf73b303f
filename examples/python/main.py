"""A poll. GET shows the votes, POST /<answer> casts one. Votes are kept in
$DATA_DIR. The program has no dependencies."""

import json
import os
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

FILE = os.path.join(os.environ["DATA_DIR"], "poll.db")
MAX_ANSWER = 40


def connect():
    db = sqlite3.connect(FILE, timeout=10)
    db.execute("CREATE TABLE IF NOT EXISTS votes (answer TEXT PRIMARY KEY, n INTEGER NOT NULL)")
    return db


class Poll(BaseHTTPRequestHandler):
    def do_GET(self):
        with connect() as db:
            self.answer(200, dict(db.execute("SELECT answer, n FROM votes ORDER BY n DESC")))

    def do_POST(self):
        answer = unquote(self.path[1:])
        if not 0 < len(answer) <= MAX_ANSWER:
            self.answer(422, {"detail": "POST to /<answer>"})
            return
        with connect() as db:
            db.execute("INSERT INTO votes VALUES (?, 1) ON CONFLICT (answer) DO UPDATE SET n = n + 1", [answer])
        self.do_GET()

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("", int(os.environ["PORT"])), Poll).serve_forever()
