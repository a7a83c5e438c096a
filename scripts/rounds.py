"""Figures of rows that are measured in turns, round by round: what the scripts that interleave make of them."""
import statistics


def ratio(values, others):
    """The median over the rounds of one row by another: what the machine did in a round counts for both."""
    return statistics.median(value / other for value, other in zip(values, others))


def row(case, unit, values):
    """A row of a result: the median with its spread."""
    return {"case": case, "unit": unit, "median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def peer(values, theirs, revision):
    """What a row has of another build that was measured in turns with it."""
    return {"peer": f"revision {revision}", "peer_median": statistics.median(theirs), "of_peer": ratio(values, theirs)}


def in_turns(programs, repetition):
    """The order in which builds are measured in a round: each is the first as often as the last."""
    return sorted(programs, reverse=repetition % 2 == 1)
