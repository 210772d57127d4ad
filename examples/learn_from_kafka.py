#!/usr/bin/env python3
"""Learns from the events of a Kafka topic as they come, and saves the model when it is told to end (Ctrl-C).

    learn_from_kafka.py BROKER TOPIC LABEL MODEL_FOLDER     needs confluent-kafka

An event is a JSON object; LABEL, 0 or 1, is one of its members. A run without Python reads Kafka itself
(docs/STREAMS.md): it keeps its place in the topic, which this script does not.
"""
import json
import sys

import confluent_kafka
import lanyard

broker, topic, label, folder = sys.argv[1:]
BATCH = 1000

consumer = confluent_kafka.Consumer({"bootstrap.servers": broker, "group.id": "lanyard-example",
                                     "auto.offset.reset": "earliest"})
consumer.subscribe([topic])
classifier, events = lanyard.Classifier(shuffle=False), 0
try:
    while True:
        messages = [one for one in consumer.consume(BATCH, timeout=5) if not one.error()]
        rows = [json.loads(one.value()) for one in messages]
        if not rows:
            continue
        labels = [row.pop(label) for row in rows]
        classifier.partial_fit(rows, labels, classes=[0, 1])
        events += len(rows)
        print(f"{events} events, iteration {classifier.model_.iteration}", flush=True)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
if events:
    classifier.save(folder)
    print("saved; now: lanyard serve", folder)
