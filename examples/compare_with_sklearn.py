#!/usr/bin/env python3
"""Compares lanyard.Classifier with logistic regression on the same rows, by cross-validation.

    compare_with_sklearn.py     needs scikit-learn and pandas

Whether someone buys depends on the pair of shop and item: a linear model on single columns cannot see that.
"""
import lanyard
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

rng = np.random.default_rng(1)
shop, item = rng.integers(0, 12, 12000), rng.integers(0, 40, 12000)
X = pd.DataFrame({"shop": [f"s{i}" for i in shop], "item": [f"i{i}" for i in item]})
y = (rng.random(len(X)) < np.where((shop + item) % 2 == 0, 0.8, 0.2)).astype(int)

models = {"logistic regression": make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()),
          "lanyard": lanyard.Classifier(epochs=8)}
for name, model in models.items():
    found = cross_validate(model, X, y, cv=3, scoring=["roc_auc", "neg_log_loss"])
    print(f"{name}: AUC {found['test_roc_auc'].mean():.3f}, log loss {-found['test_neg_log_loss'].mean():.3f}, "
          f"{found['fit_time'].mean():.1f} s to fit")
