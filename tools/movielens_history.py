#!/usr/bin/env python3
"""MovieLens ratings with the history of who rates: what configs/formats/movielens_history.json reads.

    tools/movielens_history.py u.data >history.tsv
    build/lanyard up configs/formats/movielens_history.json --set stream.files=history.tsv --out run1

u.data: user, item, rating, time by tabs (https://grouplens.org/datasets/movielens/100k/). Ratings come
out in the order of their times, with a cell more: the last items, newest first, that the user rated 4 or
5 before, at most --items of them, by "|". A rating is in no history of its own second.
"""
import argparse
import collections
import sys

LIKED = 4


def histories(ratings, item_count):
    """ratings: (user, item, rating, time), by time. Gives each with its user's history."""
    liked = collections.defaultdict(lambda: collections.deque(maxlen=item_count))
    waiting = collections.defaultdict(list)  # of the second at hand
    for user, item, rating, time in ratings:
        ripe = [one for one in waiting[user] if one[1] < time]
        waiting[user] = [one for one in waiting[user] if one[1] >= time]
        for one, _ in ripe:
            if one in liked[user]:
                liked[user].remove(one)
            liked[user].appendleft(one)
        yield user, item, rating, time, list(liked[user])
        if rating >= LIKED:
            waiting[user].append((item, time))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ratings")
    parser.add_argument("--items", type=int, default=20, help="in a history, at most")
    options = parser.parse_args()
    with open(options.ratings, encoding="ascii") as file:
        ratings = [tuple(int(cell) for cell in line.split("\t")) for line in file]
    ratings.sort(key=lambda one: one[3])
    for user, item, rating, time, history in histories(ratings, options.items):
        cell = "|".join(str(one) for one in history)
        sys.stdout.write(f"{user}\t{item}\t{cell}\t{rating}\t{time}\n")


if __name__ == "__main__":
    main()
