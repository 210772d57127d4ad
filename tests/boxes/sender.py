"""Sends numbered events over HTTP until a file STOP is there; each block until it was acknowledged.

    sender.py OUT BLOCK ADDRESS...   from the first address that takes it, in turn

OUT/acknowledged has a line for each block: its first and last number. The last line of what it
prints is how many numbers there were.
"""
import http.client
import os
import sys
import time

TIMEOUT_S = 2


def send(address, lines):
    host, port = address.rsplit(":", 1)
    try:
        one = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
        one.request("POST", "/events", lines)
        return one.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


def main():
    out, block, addresses = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    number, at = 0, 0
    with open(os.path.join(out, "acknowledged"), "w", encoding="ascii") as told:
        while not os.path.exists(os.path.join(out, "STOP")):
            numbers = range(number + 1, number + block + 1)
            lines = "".join(f"e{i},{i % 24},item{i},{i % 3 == 0:d}\n" for i in numbers)
            while not send(addresses[at % len(addresses)], lines):
                at += 1
                time.sleep(0.05)
            number += block
            told.write(f"{numbers[0]} {numbers[-1]}\n")
            told.flush()
            time.sleep(0.01)
    print(number)


main()
