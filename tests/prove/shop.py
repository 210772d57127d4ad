#!/usr/bin/python3
"""shop.py - the shop of a box: asks for scores, shows what it shows, and says what was clicked, at a fixed rate.

usage: shop.py EVENTS ADDRESS TOKEN CERTIFICATE FEED SAID [OWN]

EVENTS: lines "label,cells" of stream.format table, the columns' names in the first. On standard input lines "FIRST STEP
COUNT START PERIOD": COUNT questions of CHUNK events each, from the event FIRST on, the next one STEP events later. The
first is due at START, by the machine's monotonic clock, the next one PERIOD seconds later, whatever became of those
before: every question's clock begins when it is due, also where nobody was free to ask it (coordinated omission). For
each a line in the file SAID, "FIRST DUE ANSWERED KEPT WHO ITERATION p p ...": "hub", or "own" where the hub gave no
answer (it is not asked for a second then) and the server OWN of this box did; ANSWERED and KEPT are when the answer
was there and when the feeder had the outcomes on its disk; ITERATION is of the model that answered. "-" in place of
"hub": nobody answered. An event is a candidate of a question with the number FIRST as its name; what the hub has not
written down is sent to the feeder FEED of this box, which also gets all outcomes.
"""
import http.client
import json
import os
import queue
import ssl
import sys
import threading
import time

CHUNK = 64
SWITCH_S = 0.0005  # a thread that has an answer to note does not wait long for the others of its process
ASKERS = 8  # questions of a shop that may be under way
ASK_S, REST_S, TRIES, PAUSE_S = 1, 1, 1200, 0.1


class Server:
    """A connection that is there again when it has ended. rests: until when nobody of the shop asks it."""

    def __init__(self, address, context=None, token=None, wait_s=10, rests=None):
        self.address, self.context, self.wait_s, self.connection = address, context, wait_s, None
        self.headers = {"Authorization": "Bearer " + token} if token else {}
        self.rests = rests if rests is not None else [0.0]

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
            self.connection, self.rests[0] = None, time.monotonic() + REST_S
            return None


def keep(feed, path, body):
    """Until the feeder has it on its disk."""
    for _ in range(TRIES):
        if feed.post(path, body) is not None:
            return
        time.sleep(PAUSE_S)
    raise SystemExit("shop: the feeder takes nothing more")


class Question:
    """CHUNK events from FIRST on, as what is sent of them: made before it is due."""

    def __init__(self, events, names, first, due):
        self.first, self.due = first, due
        cells = [line.split(",") for line in events[first:first + CHUNK]]
        self.asks = json.dumps({"id": str(first), "candidates": [dict(zip(names, one[1:])) for one in cells]})
        # The names that the server gives them: should it have one after all, it is known to be the same.
        self.events = "\n".join("%d.%d,%s" % (first, k, ",".join(one[1:])) for k, one in enumerate(cells))
        self.outcomes = "\n".join("%d.%d,%s" % (first, k, one[0]) for k, one in enumerate(cells))


class Asker:
    """One who asks: connections of its own. rests: of the hub, which all askers of the shop share."""

    def __init__(self, arguments, context, token, rests):
        _, _, address, _, _, feeder, _, *own = arguments
        self.server = Server(address, context, token, ASK_S, rests)
        self.feed, self.own = Server(feeder), Server(own[0], wait_s=ASK_S) if own else None

    def see(self, question):
        """The words of its line."""
        who, answer = "hub", None
        if time.monotonic() >= self.server.rests[0]:
            answer = self.server.post("/predict", question.asks)
        if answer is None:
            keep(self.feed, "/events", question.events)
            who, answer = "own", self.own.post("/predict", question.asks) if self.own else None
        answered = time.monotonic()
        keep(self.feed, "/outcomes", question.outcomes)
        words = ["%d" % question.first] + ["%.4f" % at for at in (question.due, answered, time.monotonic())]
        if answer is None:
            return words + ["-", "0"]
        answer = json.loads(answer)
        return words + [who, "%d" % answer["model"]["iteration"]] + ["%.7g" % p for p in answer["probabilities"]]


def go_first():
    """Who asks is elsewhere in truth: what it takes to note an answer does not wait for the boxes. Of this thread."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        pass  # it waits with all others


def ask(asker, questions, said, lock):
    """Questions one after another, each not before it is due."""
    go_first()
    while True:
        question = questions.get()
        if question is None:
            return
        time.sleep(max(0.0, question.due - time.monotonic()))
        line = " ".join(asker.see(question)) + "\n"
        with lock:
            said.write(line)
            said.flush()


def main():
    sys.setswitchinterval(SWITCH_S)
    with open(sys.argv[1], encoding="ascii") as file:
        head, *events = file.read().splitlines()
    names = head.split(",")[1:]
    context = ssl.create_default_context(cafile=sys.argv[4])
    context.check_hostname = False
    with open(sys.argv[3], encoding="ascii") as file:
        token = file.read().strip()
    questions, rests, lock = queue.Queue(), [0.0], threading.Lock()
    with open(sys.argv[6], "a", encoding="ascii") as said:
        askers = [threading.Thread(target=ask, args=(Asker(sys.argv, context, token, rests), questions, said, lock))
                  for _ in range(ASKERS)]
        for one in askers:
            one.start()
        for line in sys.stdin:
            first, step, count, start, period = (part(word) for part, word in zip(
                (int, int, int, float, float), line.split()))
            for k in range(count):
                questions.put(Question(events, names, first + k * step, start + k * period))
        for _ in askers:
            questions.put(None)
        for one in askers:
            one.join()


if __name__ == "__main__":
    main()
