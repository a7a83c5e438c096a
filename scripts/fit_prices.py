#!/usr/bin/env python3
"""Fits what a lookup's steps cost, for `auto` (src/tables/acl/choose.cpp), to stored measurements.

    sluice bench classify --shape acl,fw,ipc --count 100,300,1000,3000,10000 --algorithm tuple_merge,tuple_space,bitvec \\
        -o json > bench/results/rules_cpu.json
    scripts/fit_prices.py bench/results/rules_cpu.json

The time of a packet is a constant, a price for each table that is probed and one for each rule, block or row that is
read; the steps come with each result. Least squares of relative errors, no price below zero. With --device, results
from the memory of a device. Prints prices in picoseconds and how far off they are.
"""
import argparse
import itertools
import json
import pathlib
import sys


def solve(rows, columns):
    """Prices of the given columns that make the sum of squares of (prices . row / y - 1) smallest; None: singular."""
    n = len(columns)
    matrix = [[sum(row[a] * row[b] / row["y"] ** 2 for row in rows) for b in columns] +
              [sum(row[a] / row["y"] for row in rows)] for a in columns]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(matrix[r][i]))
        if abs(matrix[pivot][i]) < 1e-18:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        for r in range(n):
            if r != i:
                factor = matrix[r][i] / matrix[i][i]
                matrix[r] = [x - factor * y for x, y in zip(matrix[r], matrix[i])]
    return {column: matrix[i][n] / matrix[i][i] for i, column in enumerate(columns)}


def fit(rows):
    """The best prices that are not negative, over all choices of which ones are zero."""
    best = None
    for size in (1, 2, 3):
        for columns in itertools.combinations(("fixed", "tables", "reads"), size):
            prices = solve(rows, columns)
            if prices is None or min(prices.values()) < 0:
                continue
            errors = [abs(sum(price * row[c] for c, price in prices.items()) / row["y"] - 1) for row in rows]
            score = sum(e * e for e in errors)
            if best is None or score < best[0]:
                best = (score, prices, errors)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=pathlib.Path, help="JSON of `sluice bench classify`")
    parser.add_argument("--device", action="store_true", help="take the results from a device's memory")
    arguments = parser.parse_args()
    groups = {}
    for path in arguments.results:
        for result in json.loads(path.read_text())["results"]:
            parts = result["case"].split("/")
            if "reads" not in result or (parts[2:] == ["resident"]) != arguments.device or (
                    not arguments.device and len(parts) != 2):
                continue
            name = parts[1] + (", pruned" if arguments.device and result["pruned"] else "")
            groups.setdefault(name, []).append({"y": 1e6 / result["median"], "fixed": 1.0, "tables": result["tables"],
                                                "reads": result["reads"]})
    if not groups:
        print("fit_prices: no result has its steps", file=sys.stderr)
        return 1
    for name, rows in sorted(groups.items()):
        found = fit(rows)
        if found is None:
            print(f"{name}: too few results")
            continue
        _, prices, errors = found
        errors.sort()
        print(f"{name}: " + ", ".join(f"{c} {prices.get(c, 0):.0f}" for c in ("fixed", "tables", "reads")) +
              f" ps; {len(rows)} results, off by {errors[len(errors) // 2]:.0%} (median), {errors[-1]:.0%} (most)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
