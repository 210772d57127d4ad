#!/usr/bin/python3
"""shop.py - the shop of a box: asks for scores, shows what it shows, and says what was clicked.

usage: shop.py EVENTS ADDRESS TOKEN CERTIFICATE FEED [OWN]

EVENTS: lines "label,cells" of stream.format table, the columns' names in the first. On standard input lines "FIRST
COUNT" of events to see now; for each a line back, "FIRST WHO SAMPLES AGE p p ...": "hub", or "own" where the hub gave
no answer (it is not asked for two seconds then) and the server OWN of this box did; how many samples its model was
trained on, how many seconds ago the last of them; and what it said. "FIRST -": nobody answered. An event is a candidate
of a question with the number FIRST as its name; what the hub has not written down is sent to the feeder FEED of this
box, which also gets all outcomes.
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


def see(events, names, server, own, feed, first, count):
    """Of `count` events: who answered, of which model, what was predicted, as texts."""
    cells = [line.split(",") for line in events[first:first + count]]
    question = json.dumps({"id": str(first), "candidates": [dict(zip(names, one[1:])) for one in cells]})
    who, answer = "hub", None
    if time.monotonic() >= server.rests:
        answer = server.post("/predict", question)
    if answer is None:
        # The name that the server would have given it: should it have it after all, it is known to be the same.
        keep(feed, "/events", "\n".join("%d.%d,%s" % (first, k, ",".join(one[1:])) for k, one in enumerate(cells)))
        who, answer = "own", own.post("/predict", question) if own else None
    keep(feed, "/outcomes", "\n".join("%d.%d,%s" % (first, k, one[0]) for k, one in enumerate(cells)))
    if answer is None:
        return ["-"]
    answer = json.loads(answer)
    model = answer["model"]
    return [who, "%d" % model["samples"], "%.3f" % model["age_s"]] + ["%.7g" % p for p in answer["probabilities"]]


def main():
    path, address, token, certificate, feeder = sys.argv[1:6]
    with open(path, encoding="ascii") as file:
        head, *events = file.read().splitlines()
    names = head.split(",")[1:]
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    with open(token, encoding="ascii") as file:
        server = Server(address, context, file.read().strip(), ASK_S)
    feed = Server(feeder)
    own = Server(sys.argv[6], wait_s=ASK_S) if sys.argv[6:] else None
    for line in sys.stdin:
        first, count = map(int, line.split())
        print(first, *see(events, names, server, own, feed, first, count), flush=True)


if __name__ == "__main__":
    main()
