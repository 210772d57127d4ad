#!/usr/bin/env python3
"""Trains on a DataFrame, judges the model by rows that it has not seen, and saves it for `lanyard serve`.

    train_from_dataframe.py MODEL_FOLDER [ROWS.csv LABEL]     needs pandas; without a file the rows are made up
"""
import sys

import lanyard
import numpy as np
import pandas as pd


def made_up(count, seed=1):
    """Visits of a shop: who bought depends on the shop and the item."""
    rng = np.random.default_rng(seed)
    shop, item = rng.integers(0, 20, count), rng.integers(0, 200, count)
    chance = np.where((shop % 3 == 0) | (item % 7 == 0), 0.7, 0.1)
    return pd.DataFrame({"shop": [f"s{i}" for i in shop], "item": [f"i{i}" for i in item],
                         "price": rng.gamma(2, 10, count).round(2), "bought": (rng.random(count) < chance).astype(int)})


folder = sys.argv[1]
rows, label = (pd.read_csv(sys.argv[2]), sys.argv[3]) if len(sys.argv) > 2 else (made_up(6000), "bought")
X, y = rows.drop(columns=label), rows[label]
cut = len(rows) * 4 // 5

classifier = lanyard.Classifier().fit(X[:cut], y[:cut])
print("kinds:", classifier.kinds_)
print("accuracy on the last fifth:", round(classifier.score(X[cut:], y[cut:]), 3))
for column, rise in classifier.importance(X[cut:], y[cut:]).items():
    print(f"without {column} log loss rises by {rise:.4f}")

classifier.save(folder)
print("saved; now: lanyard serve", folder)
