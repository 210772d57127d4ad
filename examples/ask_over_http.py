#!/usr/bin/env python3
"""Asks a server which of some candidates is the likeliest; needs nothing but Python.

    lanyard serve MODEL_FOLDER     # of train_from_dataframe.py; it prints the address
    ask_over_http.py ADDRESS       # http://127.0.0.1:8077
"""
import json
import sys
import urllib.request

question = {"context": {"shop": "s3"},  # what all candidates share
            "candidates": [{"item": "i7", "price": 19.9}, {"item": "i8", "price": 4.5}, {"item": "never seen"}]}
request = urllib.request.Request(sys.argv[1] + "/predict", json.dumps(question).encode(),
                                 {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=10) as reply:
    answer = json.load(reply)
for place in answer["ranking"]:
    print(f"{answer['probabilities'][place]:.4f}  {question['candidates'][place]}")
