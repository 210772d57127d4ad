#!/usr/bin/python3
"""shop.py - the shop of a box: asks for scores, shows what it shows, and says what was clicked.

usage: shop.py EVENTS ADDRESS TOKEN CERTIFICATE FEED

EVENTS: lines "label,cells" of stream.format table, the columns' names in the first. On standard input lines "FIRST
COUNT" of events to see now; for each a line back, "FIRST p p ...", where p is what the server said, or "-" where it
gave no answer (it is not asked for two seconds then). An event is a candidate of a question with the number FIRST as
its name; what no server has written down is sent to the feeder FEED of this box, which also gets all outcomes.
"""
import http.client
import json
import ssl
import sys
import time

ASK_S, REST_S, TRIES, PAUSE_S = 4, 2, 600, 0.1


class Server:
    """A connection that is there again when it has ended."""

    def __init__(self, address, context=None, token=None, wait_s=10):
        self.address, self.context, self.wait_s, self.connection = address, context, wait_s, None
        self.headers, self.rests = {"Authorization": "Bearer " + token} if token else {}, 0.0

    def post(self, path, body):
        """The answer's body; None if it has no answer or another one than 200."""
        try:
            if self.connection is None:
                make = http.client.HTTPSConnection if self.context else http.client.HTTPConnection
                extra = {"context": self.context} if self.context else {}
                self.connection = make(self.address, timeout=self.wait_s, **extra)
            self.connection.request("POST", path, body, self.headers)
            answer = self.connection.getresponse()
            text = answer.read()
            return text if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.connection, self.rests = None, time.monotonic() + REST_S
            return None


def keep(feed, path, body):
    """Until the feeder has it on its disk."""
    for _ in range(TRIES):
        if feed.post(path, body) is not None:
            return
        time.sleep(PAUSE_S)
    raise SystemExit("shop: the feeder takes nothing more")


def see(events, names, server, feed, first, count):
    """What was predicted of `count` events, as texts."""
    cells = [line.split(",") for line in events[first:first + count]]
    answer = None
    if time.monotonic() >= server.rests:
        candidates = [dict(zip(names, one[1:])) for one in cells]
        answer = server.post("/predict", json.dumps({"id": str(first), "candidates": candidates}))
    if answer is None:
        # The name that the server would have given it: should it have it after all, it is known to be the same.
        keep(feed, "/events", "\n".join("%d.%d,%s" % (first, k, ",".join(one[1:])) for k, one in enumerate(cells)))
    keep(feed, "/outcomes", "\n".join("%d.%d,%s" % (first, k, one[0]) for k, one in enumerate(cells)))
    return ["-"] * count if answer is None else ["%.7g" % p for p in json.loads(answer)["probabilities"]]


def main():
    path, address, token, certificate, feeder = sys.argv[1:]
    with open(path, encoding="ascii") as file:
        head, *events = file.read().splitlines()
    names = head.split(",")[1:]
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    with open(token, encoding="ascii") as file:
        server = Server(address, context, file.read().strip(), ASK_S)
    feed = Server(feeder)
    for line in sys.stdin:
        first, count = map(int, line.split())
        print(first, *see(events, names, server, feed, first, count), flush=True)


if __name__ == "__main__":
    main()
