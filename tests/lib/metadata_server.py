#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metadata_server.py CLOUD FOLDER [PORT [ADDRESS]]: a cloud's metadata service as the cloud
documents it (aws, gcp, azure), or a page, on a free port, or this one, of this machine's own
address, or this one; FOLDER/port has it. The files of FOLDER say what it replies (to one address
where the name ends with it, as page-10.77.0.11):
    action, rebalance, preempted, events, page   the body of a reply; without it there is no notice
    how       slow (never answers), malformed, endless, 401, 404 or 500: every reply is such
    expire    a file that the server removes: the token that it gave is no longer good
What was asked is in FOLDER/asked, a line each; the bodies of POST in FOLDER/posted."""
import http.server
import json
import os
import sys
import time
import urllib.parse

CLOUD, FOLDER = sys.argv[1:3]
PORT = int(sys.argv[3]) if len(sys.argv) > 3 else 0
ADDRESS = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1"


def said(name):
    try:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tokens = 0

    def log_message(self, *_):
        pass

    def note(self, name, text):
        with open(os.path.join(FOLDER, name), "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def reply(self, status, body="", tag=None):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if tag:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(data)

    def endless(self):
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b"{" * 4096)

    def handled(self):
        how = (said("how") or "").strip()
        self.note("asked", f"{self.command} {self.path}")
        if how == "slow":
            time.sleep(600)
        elif how == "endless":
            self.endless()
        elif how == "malformed":
            self.reply(200, '{"action": ')
        elif how.isdigit():
            self.reply(int(how), "no\n")
        return how != ""

    def guarded(self, work):
        try:
            if not self.handled():
                work(urllib.parse.urlparse(self.path))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_PUT(self):
        self.guarded(self.put)

    def do_GET(self):
        self.guarded({"aws": self.aws, "gcp": self.gcp, "azure": self.azure,
                      "page": self.page}[CLOUD])

    def do_POST(self):
        self.guarded(self.post)

    # --- AWS ---

    def put(self, url):
        seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if CLOUD != "aws" or url.path != "/latest/api/token" or not seconds.isdigit():
            return self.reply(400)
        Handler.tokens += 1
        return self.reply(200, f"token-{Handler.tokens}==")

    def aws(self, url):
        token = self.headers.get("X-aws-ec2-metadata-token")
        expired = said("expire") is not None
        if expired:
            os.unlink(os.path.join(FOLDER, "expire"))
        if token != f"token-{Handler.tokens}==" or expired:
            return self.reply(401)
        body = {"/latest/meta-data/spot/instance-action": said("action"),
                "/latest/meta-data/events/recommendations/rebalance": said("rebalance")
                }.get(url.path)
        return self.reply(404) if body is None else self.reply(200, body)

    # --- Compute Engine ---

    def gcp(self, url):
        if (self.headers.get("Metadata-Flavor") != "Google"
                or url.path != "/computeMetadata/v1/instance/preempted"):
            return self.reply(403)
        query = urllib.parse.parse_qs(url.query)
        end = time.monotonic() + int(query.get("timeout_sec", ["0"])[0])
        while True:
            body = (said("preempted") or "FALSE").strip()
            tag = f"tag{body}"
            if query.get("last_etag") != [tag] or time.monotonic() > end:
                return self.reply(200, body, tag)
            time.sleep(0.05)

    # --- Azure ---

    def azure(self, url):
        if self.headers.get("Metadata") != "true":
            return self.reply(400)
        if url.path == "/metadata/instance/compute/name":
            return self.reply(200, "vm0")
        if url.path != "/metadata/scheduledevents":
            return self.reply(404)
        events = json.loads(said("events") or "[]")
        return self.reply(200, json.dumps({"DocumentIncarnation": 1, "Events": events}))

    def post(self, url):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        if CLOUD != "azure" or url.path != "/metadata/scheduledevents":
            return self.reply(404)
        self.note("posted", body)
        return self.reply(200)

    # --- a page ---

    def page(self, url):
        body = said(f"page-{self.client_address[0]}") or said("page")
        return self.reply(404) if body is None else self.reply(200, body)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    server = http.server.ThreadingHTTPServer((ADDRESS, PORT), Handler)
    server.daemon_threads = True
    path = os.path.join(FOLDER, "port")
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(str(server.server_address[1]))
    os.rename(path + ".new", path)
    server.serve_forever()


if __name__ == "__main__":
    main()
