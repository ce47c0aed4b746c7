"""The compiled passes behind the searches. Everything here is arrays in, arrays out.

Adjusted scores along a line are straight lines in t:  z_ik(t) = (m_k + t h_k) o_ik − (l_k + t g_k). Passes that do each
sample by itself take what has a row per sample first, as `by_rows` wants it.
"""

from __future__ import annotations

from math import factorial

import numpy as np

from capri.forms import ROUNDING
from capri.posthoc._compiled import Array, compiled

# NaNs never reach a comparison that decides (0/0 is masked by d > 0 and d < 0), so the compiler may vectorise extrema.
_VECTOR_MATH = {"nnan", "nsz"}

CANCELLED = 1e-6  # a variance this small is summed anew: as a difference of sums it would be rounding


@compiled(fastmath=_VECTOR_MATH, error_model="numpy")
def right_intervals(
    scores: Array, y: Array, low: Array, high: Array, m: Array, l: Array, h: Array, g: Array
) -> None:  # pragma: no cover
    """The open interval (low_i, high_i) of t on which sample i is classified right; empty as (inf, −inf).

    Right at t means  t·d_k > z_ik − z_iy  for all k ≠ y, with d_k = slope_y − slope_k: positive d_k bound t from below,
    negative ones from above. Equal slopes decide for all t, by the scores, and on equal scores as argmax does.
    """
    n_classes = scores.shape[1]
    for i in range(scores.shape[0]):
        label = y[i]
        own = np.float64(scores[i, label])
        z_own = m[label] * own - l[label]
        slope_own = h[label] * own - g[label]
        lower, upper, rival, level = -np.inf, np.inf, -np.inf, 0
        for k in range(n_classes):
            o = np.float64(scores[i, k])
            gap = (m[k] * o - l[k]) - z_own
            d = slope_own - (h[k] * o - g[k])
            t = gap / d
            above = t if d > 0 else -np.inf
            below = t if d < 0 else np.inf
            always = gap if d == 0 else -np.inf
            lower = above if above > lower else lower
            upper = below if below < upper else upper
            rival = always if always > rival else rival
            level += 1 if d == 0 and gap == 0 else 0  # the label itself is one of these
        if level > 1:  # a class with the same slope and score wins if its index is lower
            for k in range(label):
                o = np.float64(scores[i, k])
                if h[k] * o - g[k] == slope_own and m[k] * o - l[k] == z_own:
                    rival = 1.0
        if rival > 0 or lower >= upper:
            lower, upper = np.inf, -np.inf
        low[i] = lower
        high[i] = upper


@compiled()
def sweep_errors(
    slots: Array,
    classes: Array,
    steps: Array,
    errors: Array,
    linear: Array,
    deviation: Array,
    ranks: Array,
    groups: Array,
    n_groups: Array,
    geometric: Array,
    values: Array,
) -> None:  # pragma: no cover
    """Values (F, T + 1) of F forms on the T + 1 plateaus between T breakpoints.

    Event e adds steps[e] to the error of class classes[e] at breakpoint slots[e]; events come sorted. errors: on the
    first plateau, changed in place. Forms are stacked: linear (F, K), deviation (F,), ranks and groups (F, K) padded,
    n_groups (F,), 0 where a form ranks nothing, geometric (F,). Other terms move in O(1); ranked errors stay sorted,
    and an error that changes moves past its neighbours.
    """
    n_forms, n_classes = linear.shape
    sizes = np.zeros((n_forms, n_classes))
    ordered = np.zeros((n_forms, n_classes))  # group errors, worst first
    place = np.zeros((n_forms, n_classes), np.int64)  # where a group stands
    who = np.zeros((n_forms, n_classes), np.int64)  # which group stands there
    level = np.zeros(n_forms)  # linear and ranked part of each value
    for f in range(n_forms):
        means = np.zeros(n_classes)
        for k in range(n_classes):
            level[f] += linear[f, k] * errors[k]
            if n_groups[f]:
                sizes[f, groups[f, k]] += 1
                means[groups[f, k]] += errors[k]
        count = n_groups[f]
        if count:
            order = np.argsort(-(means[:count] / sizes[f, :count]))
            for p in range(count):
                group = order[p]
                who[f, p], place[f, group] = group, p
                ordered[f, p] = means[group] / sizes[f, group]
                level[f] += ranks[f, p] * ordered[f, p]
    total, squares = errors.sum(), (errors**2).sum()
    some_geometric, logs, missed = (geometric != 0.0).any(), 0.0, 0  # Σ log recall, and how many recalls are 0
    for k in range(n_classes):
        log, zero = _log_recall(errors[k])
        logs, missed = logs + log, missed + zero
    event, n_events = 0, len(slots)
    for slot in range(values.shape[1]):
        for f in range(n_forms):
            values[f, slot] = level[f]
            if deviation[f] != 0.0:
                mean = total / n_classes
                variance = squares / n_classes - mean * mean
                if variance < CANCELLED:
                    variance = ((errors - mean) ** 2).mean()
                values[f, slot] += deviation[f] * np.sqrt(variance)
            if geometric[f] != 0.0:
                values[f, slot] += geometric[f] * (1.0 if missed else 1 - np.exp(logs / n_classes))
        while event < n_events and slots[event] == slot:
            k, step = classes[event], steps[event]
            old = errors[k]
            errors[k] = old + step
            total += step
            squares += step * (2 * old + step)
            if some_geometric:
                log_old, zero_old = _log_recall(old)
                log_new, zero_new = _log_recall(old + step)
                logs, missed = logs + (log_new - log_old), missed + (zero_new - zero_old)
            for f in range(n_forms):
                level[f] += linear[f, k] * step
                if n_groups[f]:
                    group = groups[f, k]
                    level[f] += _move(
                        ordered[f], place[f], who[f], ranks[f], n_groups[f], group, step / sizes[f, group]
                    )
            event += 1


@compiled()
def _log_recall(error: float) -> tuple[float, int]:  # pragma: no cover
    """log(1 − error) and 0; of a recall of 0, which is counted instead, 0 and 1."""
    recall = 1.0 - error
    return (np.log(recall), 0) if recall > ROUNDING else (0.0, 1)


@compiled()
def _move(
    ordered: Array, place: Array, who: Array, ranks: Array, count: int, group: int, step: float
) -> float:  # pragma: no cover
    """Change one ranked error and restore the order; returns the change of ranks · ordered."""
    p = place[group]
    change = ranks[p] * step
    value = ordered[p] + step
    while p > 0 and ordered[p - 1] < value:
        change += (ranks[p - 1] - ranks[p]) * (value - ordered[p - 1])
        ordered[p], who[p] = ordered[p - 1], who[p - 1]
        place[who[p]] = p
        p -= 1
    while p < count - 1 and ordered[p + 1] > value:
        change += (ranks[p] - ranks[p + 1]) * (ordered[p + 1] - value)
        ordered[p], who[p] = ordered[p + 1], who[p + 1]
        place[who[p]] = p
        p += 1
    ordered[p], who[p], place[group] = value, group, p
    return change


@compiled()
def _envelope(scores: Array, i: int, order: Array, m: Array, l: Array, g: Array, top: Array, since: Array) -> int:
    """Classes on the upper envelope of sample i's lines m_k o_k − l_k − t g_k, from t = −∞ to ∞; returns how many.

    order: classes by slope −g, lowest first, each slope's classes by index. top: the classes; since[j]: where class
    top[j] takes over. Of equal slopes only the best score counts, and of equal scores the lower index, as argmax does.
    """
    size = 0
    for position in range(len(order)):
        k = order[position]
        z = m[k] * np.float64(scores[i, k]) - l[k]
        dominated = False
        while size > 0:
            last = top[size - 1]
            z_last = m[last] * np.float64(scores[i, last]) - l[last]
            d = g[last] - g[k]  # slope of k minus slope of last, never negative in this order
            if d == 0.0:
                if z_last >= z:
                    dominated = True
                    break
                size -= 1
                continue
            cross = (z_last - z) / d
            if size > 1 and cross <= since[size - 1]:
                size -= 1
                continue
            since[size] = cross
            break
        if not dominated:
            if size == 0:
                since[0] = -np.inf
            top[size] = k
            size += 1
    return size


@compiled()
def envelope_events(
    scores: Array, sizes: Array, first: Array, times: Array, after: Array, order: Array, m: Array, l: Array, g: Array
) -> None:
    """Classes that each sample is assigned to, over all t: how many (sizes), the first, and the changes from there.

    Row i of times and after (the class from then on) holds sample i's first changes, as many as there are columns.
    """
    for i in range(scores.shape[0]):
        top, since = np.empty(len(order), np.int64), np.empty(len(order))
        size = _envelope(scores, i, order, m, l, g, top, since)
        sizes[i], first[i] = size, top[0]
        for j in range(1, min(size, times.shape[1] + 1)):
            times[i, j - 1] = since[j]
            after[i, j - 1] = top[j]


@compiled()
def sweep_margins(
    slots: Array,
    before: Array,
    after: Array,
    lost: Array,
    won: Array,
    weights: Array,
    prices: Array,
    hits: Array,
    rows: Array,
    columns: Array,
    f1: Array,
    precision: Array,
    values: Array,
) -> None:
    """Adds to values (T + 1,) what F1, precision and prices make of each plateau.

    Event e takes a sample of weight weights[e] from class before[e], which loses lost[e] of its hits, to class
    after[e], which gains won[e], at the price prices[e]. hits, rows, columns: of the confusion matrix on the first
    plateau.
    """
    level, nothing = 0.0, ROUNDING * rows.sum()
    for k in range(len(hits)):
        level += _scores(f1[k], precision[k], hits[k], rows[k], columns[k], nothing)
    event, n_events = 0, len(slots)
    for slot in range(len(values)):
        values[slot] += level
        while event < n_events and slots[event] == slot:
            a, b, w = before[event], after[event], weights[event]
            for k in (a, b):
                level -= _scores(f1[k], precision[k], hits[k], rows[k], columns[k], nothing)
            hits[a] -= lost[event]
            hits[b] += won[event]
            columns[a] -= w
            columns[b] += w
            for k in (a, b):
                level += _scores(f1[k], precision[k], hits[k], rows[k], columns[k], nothing)
            level += prices[event]
            event += 1


@compiled()
def _scores(f1: float, precision: float, hits: float, row: float, column: float, nothing: float) -> float:
    """f1·F1 + precision·Precision of a class. A column below `nothing` is what rounding leaves of an empty one."""
    both = row + column
    value = f1 * 2 * hits / both if both > 0 else 0.0
    return value + precision * hits / column if precision != 0.0 and column > nothing else value


@compiled()
def sweep_moments(
    slots: Array,
    before: Array,
    after: Array,
    lost: Array,
    won: Array,
    weights: Array,
    hits: Array,
    rows: Array,
    columns: Array,
    sums: Array,
) -> None:
    """sums (3, T + 1): Σ hits, rows·columns and columns·columns on each plateau, in O(1).

    Event e takes weights[e] from class before[e], which loses lost[e] of its hits, to class after[e], which gains
    won[e]. hits, rows, columns: of the confusion matrix on the first plateau; columns are changed in place.
    """
    right, chance, decided = hits.sum(), (rows * columns).sum(), (columns**2).sum()
    event, n_events = 0, len(slots)
    for slot in range(sums.shape[1]):
        sums[0, slot], sums[1, slot], sums[2, slot] = right, chance, decided
        while event < n_events and slots[event] == slot:
            a, b, w = before[event], after[event], weights[event]
            right += won[event] - lost[event]
            chance += w * (rows[b] - rows[a])
            decided += w * (w - 2 * columns[a])
            columns[a] -= w
            decided += w * (w + 2 * columns[b])
            columns[b] += w
            event += 1


@compiled()
def predict(scores: Array, predictions: Array, m: Array, l: Array) -> None:
    """argmax_k m_k o_ik − l_k of each sample; the lower index wins a tie."""
    for i in range(scores.shape[0]):
        best, choice = -np.inf, 0
        for k in range(scores.shape[1]):
            z = m[k] * np.float64(scores[i, k]) - l[k]
            if z > best:
                best, choice = z, k
        predictions[i] = choice


SQUARINGS = 6
TAYLOR = np.array([1 / factorial(n) for n in range(7)])


_SUMS = _VECTOR_MATH | {"reassoc", "contract"}


@compiled(fastmath=_SUMS, error_model="numpy")
def soft_decisions(scores: Array, scale: Array, shift: Array, p: Array) -> None:  # pragma: no cover
    """p (N, K) = softmax(2^SQUARINGS·(scale∘scores − shift)).

    The exponential is (e^h)^64, h ≥ −1/2, with e^h by its Taylor series: off by less than 1e-11 (in single precision,
    1e-6), and unlike `exp` made of nothing but vector instructions.
    """
    n_classes = scores.shape[1]
    series = TAYLOR.astype(scores.dtype)
    zero, least = scores.dtype.type(0), scores.dtype.type(-0.5)
    for i in range(scores.shape[0]):
        top, total = -scores.dtype.type(np.inf), zero
        for k in range(n_classes):
            z = scores[i, k] * scale[k] - shift[k]
            p[i, k] = z
            top = z if z > top else top
        for k in range(n_classes):
            h = p[i, k] - top
            h = h if h > least else least
            e = series[6]
            for n in range(5, -1, -1):
                e = e * h + series[n]
            for _ in range(SQUARINGS):
                e *= e
            p[i, k] = e
            total += e
        share = scores.dtype.type(1) / total
        for k in range(n_classes):
            p[i, k] *= share


@compiled(fastmath=_SUMS, error_model="numpy")
def soft_margins(p: Array, membership: Array, weight: Array, hits: Array, columns: Array) -> None:  # pragma: no cover
    """hits_k += Σ_i M_ik p_ik and columns_k += Σ_i w_i p_ik: the soft confusion matrix's diagonal and column sums."""
    for i in range(p.shape[0]):
        w = weight[i]
        for k in range(p.shape[1]):
            hits[k] += membership[i, k] * p[i, k]
            columns[k] += w * p[i, k]


@compiled(fastmath=_SUMS, error_model="numpy")
def soft_slopes(
    p: Array, membership: Array, weight: Array, by_hits: Array, by_columns: Array, by: Array, slopes: Array
) -> None:  # pragma: no cover
    """slopes_k += Σ_i p_ik (v_ik − Σ_j p_ij v_ij) by_ik,  v_ik = M_ik by_hits_k + w_i by_columns_k.

    The derivative, by the adjusted scores, of what has these derivatives by hits and columns. by: (N, K) or (1, 1),
    what an adjusted score moves with: 1 for offsets, the scores for multipliers.
    """
    plain = by.shape[0] == 1
    v = np.empty(p.shape[1])
    for i in range(p.shape[0]):
        w, mean = weight[i], 0.0
        if w == 0.0:
            continue
        for k in range(p.shape[1]):
            v[k] = membership[i, k] * by_hits[k] + w * by_columns[k]
        for k in range(p.shape[1]):  # by itself, or where v lies in memory would decide how the sum is vectorised
            mean += p[i, k] * v[k]
        if plain:
            for k in range(p.shape[1]):
                slopes[k] += p[i, k] * (v[k] - mean)
        else:
            for k in range(p.shape[1]):
                slopes[k] += p[i, k] * (v[k] - mean) * by[i, k]
