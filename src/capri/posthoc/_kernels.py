"""The compiled passes behind the searches. Everything here is arrays in, arrays out.

Adjusted scores along a line are straight lines in t:  z_ik(t) = (m_k + t h_k) o_ik − (l_k + t g_k). Passes that do each
sample by itself take what has a row per sample first, as `by_rows` wants it.
"""

from __future__ import annotations

from math import factorial

import numpy as np

from capri.forms import ROUNDING
from capri.posthoc._compiled import Array, compiled, larger

# NaNs never reach a comparison that decides (0/0 is masked by d > 0 and d < 0), so the compiler may vectorise extrema.
_VECTOR_MATH = {"nnan", "nsz"}

BLOCK = 64  # classes whose best is found before anybody asks which of them it is
NONE = float(
    -np.finfo(np.float64).max
)  # stands for −∞ in what is compared, for infinite constants hinder the vectoriser
FEW = 32  # classes whose envelope is found without looking for contenders
SAME = 1e-14  # share of two numbers by which their difference may be rounding
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
        lower, rest, rival, level = NONE, NONE, NONE, 0
        for k in range(n_classes):
            o = np.float64(scores[i, k])
            gap = (m[k] * o - l[k]) - z_own
            d = slope_own - (h[k] * o - g[k])
            t = gap / d
            lower = larger(t if d > 0 else NONE, lower)
            rest = larger(-t if d < 0 else NONE, rest)
            rival = larger(gap if d == 0 else NONE, rival)
            level += 1 if d == 0 and gap == 0 else 0  # the label itself is one of these
        low[i], high[i] = lower if lower > NONE else -np.inf, -rest if rest > NONE else np.inf
        if level > 1:  # a class with the same slope and score wins if its index is lower
            for k in range(label):
                o = np.float64(scores[i, k])
                if h[k] * o - g[k] == slope_own and m[k] * o - l[k] == z_own:
                    rival = 1.0
        if rival > 0 or low[i] >= high[i]:
            low[i], high[i] = np.inf, -np.inf


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
def _envelope(z: Array, g: Array, order: Array, count: int, top: Array, since: Array) -> int:
    """The upper envelope of `count` lines z_j − t g_j from t = −∞ to ∞; returns how many of them are on it.

    Lines come by slope −g, lowest first, each slope's classes (order) by index. top: the classes; since[j]: where class
    top[j] takes over. Of equal slopes only the best score counts, and of equal scores the lower index, as argmax does.
    """
    size, on_top = 0, np.empty(count, np.int64)
    for line in range(count):
        dominated = False
        while size > 0:
            last = on_top[size - 1]
            d = g[last] - g[line]  # slope of this line minus that of the last, never negative in this order
            if d == 0.0:
                if z[last] >= z[line]:
                    dominated = True
                    break
                size -= 1
                continue
            cross = (z[last] - z[line]) / d
            if size > 1 and cross <= since[size - 1]:
                size -= 1
                continue
            since[size] = cross
            break
        if not dominated:
            if size == 0:
                since[0] = -np.inf
            on_top[size], top[size] = line, order[line]
            size += 1
    return size


@compiled(fastmath=_VECTOR_MATH, error_model="numpy")
def _highest(z: Array, g: Array, t: float) -> float:
    """max_j z_j − t g_j."""
    best = NONE
    for j in range(len(z)):
        best = larger(z[j] - t * g[j], best)
    return best


@compiled()
def _contenders(z: Array, g: Array, kept: Array, ends: Array) -> int:
    """Of lines z_j − t g_j in the order of their slopes, those that may be on the upper envelope; returns how many.

    Between two that are on it none is that lies below their crossing; else the highest there is on it, too, and parts
    the others in two. What is told by less than rounding is kept. kept: which they are, in order; ends (·, 2): room for
    the pairs that are still to be looked between.
    """
    last, left, right = len(z) - 1, 0, len(z) - 1
    for j in range(len(z)):  # the best of the lowest slope, and of the highest
        if g[j] != g[0]:
            break
        left = j if z[j] > z[left] else left
    for j in range(last, -1, -1):
        if g[j] != g[last]:
            break
        right = j if z[j] >= z[right] else right
    size, depth = 0, 0
    for j in range(left + 1):
        if z[j] == z[left] and g[j] == g[0]:
            kept[size] = j
            size += 1
    if g[0] == g[last]:
        return size
    ends[0, 0], ends[0, 1] = left, right
    while depth >= 0:
        a, b = ends[depth]
        depth -= 1
        t = (z[a] - z[b]) / (g[a] - g[b])
        level = z[a] - t * g[a]
        guard = SAME * (abs(z[a]) + abs(z[b]) + abs(t) * (abs(g[a]) + abs(g[b])))
        highest, place = NONE, a + 1
        for j in range(a + 1, b, BLOCK):
            there = _highest(z[j : min(j + BLOCK, b)], g[j : min(j + BLOCK, b)], t)
            if there > highest:
                highest, place = there, j
        if highest > level + guard:
            while z[place] - t * g[place] != highest:
                place += 1
            ends[depth + 1, 0], ends[depth + 1, 1] = place, b
            ends[depth + 2, 0], ends[depth + 2, 1] = a, place
            depth += 2
            continue
        if highest >= level - guard:
            for j in range(a + 1, b):
                if z[j] - t * g[j] >= level - guard:
                    kept[size] = j
                    size += 1
        kept[size] = b
        size += 1
    for j in range(right + 1, len(z)):
        if z[j] == z[right]:
            kept[size] = j
            size += 1
    return size


@compiled()
def envelope_events(
    scores: Array, sizes: Array, first: Array, times: Array, after: Array, order: Array, m: Array, l: Array, g: Array
) -> None:
    """Classes that each sample is assigned to, over all t: how many (sizes), the first, and the changes from there.

    Row i of times and after (the class from then on) holds sample i's first changes, as many as there are columns.
    """
    n_classes = len(order)
    top, since = np.empty(n_classes, np.int64), np.empty(n_classes)
    z, kept, ends = np.empty(n_classes), np.arange(n_classes), np.empty((n_classes + 2, 2), np.int64)
    slopes, scale, shift = g[order], m[order], l[order]
    for i in range(scores.shape[0]):
        for j in range(n_classes):
            z[j] = scale[j] * np.float64(scores[i, order[j]]) - shift[j]
        if n_classes > FEW:
            few = kept[: _contenders(z, slopes, kept, ends)]
            size = _envelope(z[few], slopes[few], order[few], len(few), top, since)
        else:
            size = _envelope(z, slopes, order, n_classes, top, since)
        sizes[i], first[i] = size, top[0]
        for j in range(1, min(size, times.shape[1] + 1)):
            times[i, j - 1] = since[j]
            after[i, j - 1] = top[j]


@compiled()
def envelope_of_entries(
    starts: Array,
    classes: Array,
    scores: Array,
    first: Array,
    times: Array,
    after: Array,
    m: Array,
    l: Array,
    g: Array,
    low: float,
    high: float,
) -> None:  # pragma: no cover
    """`envelope_events` between low and high, of samples of which some entries are left.

    times and after have room for as many changes as entries; where there are fewer, times are NaN. Few classes take
    over in a short part of a line, so each is looked for by itself: the first that crosses the one before.
    """
    z = np.empty(len(m))
    for i in range(len(first)):
        begin, end = starts[i], starts[i + 1]
        best, on_top = -np.inf, begin
        for entry in range(begin, end):
            k = classes[entry]
            z[entry - begin] = m[k] * np.float64(scores[entry]) - l[k]
            level = z[entry - begin] - low * g[k]
            if level > best:
                best, on_top = level, entry
        first[i], place, since = classes[on_top], begin, low
        while True:
            slope, level, cross, steepest, above = g[classes[on_top]], z[on_top - begin], high, 0.0, on_top
            for entry in range(begin, end):
                d = slope - g[classes[entry]]
                if d > 0 and level - z[entry - begin] <= cross * d:
                    t = (level - z[entry - begin]) / d
                    if t < cross or (t == cross and d > steepest):
                        cross, steepest, above = t, d, entry
            if cross >= high or above == on_top:
                break
            on_top = above
            if cross <= low:
                first[i] = classes[on_top]
            else:
                since = max(since, cross)
                times[place], after[place] = since, classes[on_top]
                place += 1
        times[place:end] = np.nan


@compiled()
def lost_beyond(
    starts: Array, ends: Array, decisions: Array, lost: Array, classes: Array, masses: Array, slopes: Array
) -> None:  # pragma: no cover
    """lost (K,): mass of entries that are neither the decision of their sample nor steeper."""
    for i in range(len(starts)):
        for entry in range(starts[i], ends[i]):
            k = classes[entry]
            if k != decisions[i] and slopes[k] <= slopes[decisions[i]]:
                lost[k] += masses[entry]


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
def sweep_least(
    slots: Array,
    before: Array,
    after: Array,
    lost: Array,
    won: Array,
    weights: Array,
    groups: Array,
    hits: Array,
    rows: Array,
    columns: Array,
    as_f1: bool,
    values: Array,
) -> None:
    """values (T + 1,): 1 − the least precision or F1 of groups on each plateau; margins are those of groups.

    Events are those of `sweep_margins`, between classes; groups: (K,) where each belongs, −1 for none.
    """
    event, n_events, nothing = 0, len(slots), ROUNDING * rows.sum()
    for slot in range(len(values)):
        least = np.inf
        for g in range(len(hits)):
            whole = (rows[g] + columns[g]) / 2 if as_f1 else columns[g]
            least = min(least, hits[g] / whole if whole > nothing else 0.0)
        values[slot] = 1 - least
        while event < n_events and slots[event] == slot:
            a, b = groups[before[event]], groups[after[event]]
            if a >= 0:
                hits[a] -= lost[event]
                columns[a] -= weights[event]
            if b >= 0:
                hits[b] += won[event]
                columns[b] += weights[event]
            event += 1


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
def margins_of_cells(
    classes: Array, before: Array, after: Array, mass: Array, totals: Array, margins: Array
) -> None:  # pragma: no cover
    """margins (2, 2, K): hits and column sums before, and after, of cells whose mass is scaled to the class totals."""
    factors = np.zeros(len(totals))
    for cell in range(len(mass)):
        factors[classes[cell]] += mass[cell]
    for k in range(len(totals)):
        factors[k] = totals[k] / factors[k] if factors[k] > 0 else 0.0
    for cell in range(len(mass)):
        k = classes[cell]
        amount = mass[cell] * factors[k]
        margins[0, 1, before[cell]] += amount
        margins[1, 1, after[cell]] += amount
        if before[cell] == k:
            margins[0, 0, k] += amount
        if after[cell] == k:
            margins[1, 0, k] += amount


@compiled()
def _best(scores: Array, m: Array, l: Array) -> float:
    """max_k m_k o_k − l_k of some classes of a sample."""
    best = -np.inf
    for k in range(len(scores)):
        best = larger(m[k] * np.float64(scores[k]) - l[k], best)
    return best


@compiled()
def predict(scores: Array, predictions: Array, m: Array, l: Array) -> None:
    """argmax_k m_k o_ik − l_k of each sample; the lower index wins a tie.

    First among which classes it is, then which of them.
    """
    for i in range(scores.shape[0]):
        best, place = -np.inf, 0
        for k in range(0, scores.shape[1], BLOCK):
            z = _best(scores[i, k : k + BLOCK], m[k : k + BLOCK], l[k : k + BLOCK])
            if z > best:
                best, place = z, k
        while m[place] * np.float64(scores[i, place]) - l[place] != best:
            place += 1
        predictions[i] = place


@compiled(fastmath=_VECTOR_MATH, error_model="numpy")
def count_near(
    scores: Array, counts: Array, levels: Array, m: Array, l: Array, width: float, slack: float
) -> None:  # pragma: no cover
    """How many classes are so near to the best of their sample, by m_k o_ik − l_k, and the level that this means."""
    for i in range(scores.shape[0]):
        best, size, count = _best(scores[i], m, l), 0.0, 0
        for k in range(scores.shape[1]):
            size = larger(abs(m[k] * np.float64(scores[i, k])) + abs(l[k]), size)
        level = best - width - slack * (size + width)
        for k in range(scores.shape[1]):
            count += 1 if m[k] * np.float64(scores[i, k]) - l[k] >= level else 0
        counts[i], levels[i] = count, level


@compiled(fastmath=_VECTOR_MATH, error_model="numpy")
def _mark(marks: Array, scores: Array, m: Array, l: Array, level: float) -> None:
    """marks (K,): which classes reach the level."""
    for k in range(len(scores)):
        marks[k] = m[k] * np.float64(scores[k]) - l[k] >= level


@compiled()
def keep_near(
    scores: Array, starts: Array, levels: Array, classes: Array, kept: Array, m: Array, l: Array
) -> None:  # pragma: no cover
    """Classes and scores of those that reach the level of their sample, from its start on."""
    n_words = -(-scores.shape[1] // 8)
    marks = np.zeros(8 * n_words, np.uint8)
    words = marks.view(np.uint64)  # of eight classes, nearly all of which are 0
    for i in range(scores.shape[0]):
        place = starts[i]
        _mark(marks, scores[i], m, l, levels[i])
        for word in range(n_words):
            if words[word] != 0:
                for k in range(8 * word, min(8 * word + 8, scores.shape[1])):
                    if marks[k]:
                        classes[place], kept[place] = k, scores[i, k]
                        place += 1


@compiled()
def predict_entries(
    starts: Array, classes: Array, scores: Array, predictions: Array, m: Array, l: Array
) -> None:  # pragma: no cover
    """argmax_k m_k o_ik − l_k over the entries of each sample; the lower index wins a tie."""
    for i in range(len(predictions)):
        best, choice = -np.inf, 0
        for entry in range(starts[i], starts[i + 1]):
            k = classes[entry]
            z = m[k] * np.float64(scores[entry]) - l[k]
            if z > best:
                best, choice = z, k
        predictions[i] = choice


PRECISE = 64  # samples
TINY = np.finfo(np.float32).tiny  # probability
SQUARINGS = 6
TAYLOR = np.array([1 / factorial(n) for n in range(7)])


_SUMS = _VECTOR_MATH | {"reassoc", "contract"}


# What sums in an order of the compiler's choice becomes a part of whoever calls it. As a function of its own it would
# be copied into several kernels, the linker would keep the copy that it meets first, and the last bits of a sum would
# depend on which kernels were compiled, or taken from the cache, before.
@compiled(fastmath=_SUMS, error_model="numpy", forceinline=True)
def _exponentials(scores: Array, scale: Array, shift: Array, series: Array, e: Array) -> tuple[float, float]:
    """e (K,) = exp(z − max z) of one sample, z = 2^SQUARINGS·(scale∘scores − shift).

    Returns max z / 2^SQUARINGS, and the sum of e.

    The exponential is (e^h)^64, h ≥ −1/2, with e^h by its Taylor series: off by less than 1e-11 (in single precision,
    1e-6), and unlike `exp` made of nothing but vector instructions.
    """
    top, total, least = -scores.dtype.type(np.inf), scores.dtype.type(0), scores.dtype.type(-0.5)
    for k in range(len(e)):
        z = scores[k] * scale[k] - shift[k]
        e[k] = z
        top = larger(z, top)
    for k in range(len(e)):
        h = larger(e[k] - top, least)
        power = series[6]
        for n in range(5, -1, -1):
            power = power * h + series[n]
        for _ in range(SQUARINGS):
            power *= power
        e[k] = power
        total += power
    return top, total


@compiled(fastmath=_SUMS, error_model="numpy")
def soft_decisions(scores: Array, p: Array, scale: Array, shift: Array) -> None:  # pragma: no cover
    """p (N, K) = softmax(2^SQUARINGS·(scale∘scores − shift))."""
    series = TAYLOR.astype(scores.dtype)
    for i in range(scores.shape[0]):
        _, total = _exponentials(scores[i], scale, shift, series, p[i])
        share = scores.dtype.type(1) / total
        for k in range(scores.shape[1]):
            p[i, k] *= share


@compiled(fastmath=_SUMS, error_model="numpy", forceinline=True)
def _add(sums: Array, factor: float, e: Array) -> None:  # pragma: no cover
    """sums += factor·e."""
    for k in range(len(e)):
        sums[k] += factor * e[k]


@compiled(fastmath=_SUMS, error_model="numpy", forceinline=True)
def _dot(first: Array, second: Array) -> float:  # pragma: no cover
    """first · second."""
    total = first.dtype.type(0)
    for k in range(len(first)):
        total += first[k] * second[k]
    return total


@compiled(fastmath=_SUMS, error_model="numpy")
def opinions(
    numbers: Array,
    y: Array,
    weight: Array,
    own: Array,
    sums: Array,
    scores: Array,
    scale: Array,
    shift: Array,
    noise: float,
    chance: Array,
) -> None:  # pragma: no cover
    """What the likelihood of labels needs of the posterior q = softmax(2^SQUARINGS·(scale∘scores − shift)).

    numbers (N,): which rows of the scores are the samples. own (N,): q_iy. sums (K + 1,): Σ_i u_i q_ik for each class,
    and Σ_i u_i Σ_k q_ik o_ik, where u_i is the share of the sample's weight for which the scores speak, not the noise:
    w_i (1 − ε) q_iy / ((1 − ε) q_iy + ε chance_y).
    """
    n_classes = scores.shape[1]
    series = TAYLOR.astype(scores.dtype)
    e, some = np.empty(n_classes, scores.dtype), np.zeros(n_classes, scores.dtype)
    for i in range(len(numbers)):
        sample = scores[numbers[i]]
        _, total = _exponentials(sample, scale, shift, series, e)
        own[i] = np.float64(e[y[i]]) / total
        mixed = max((1 - noise) * own[i] + noise * chance[y[i]], TINY)
        trusted = weight[i] * (1 - noise) * own[i] / mixed
        _add(some, scores.dtype.type(trusted / total), e)
        sums[n_classes] += trusted * (_dot(e, sample) / total)
        if i % PRECISE == PRECISE - 1 or i == len(numbers) - 1:  # few enough to be added in single precision
            for k in range(n_classes):
                sums[k] += some[k]
                some[k] = 0


@compiled(fastmath=_SUMS, error_model="numpy")
def variances(scores: Array, weight: Array, sums: Array, scale: Array, shift: Array) -> None:  # pragma: no cover
    """sums (K,): Σ_i w_i q_ik (1 − q_ik) with q = softmax(2^SQUARINGS·(scale∘scores − shift))."""
    n_classes, one = scores.shape[1], scores.dtype.type(1)
    series, e = TAYLOR.astype(scores.dtype), np.empty(scores.shape[1], scores.dtype)
    for i in range(scores.shape[0]):
        _, total = _exponentials(scores[i], scale, shift, series, e)
        share = one / total
        w = scores.dtype.type(weight[i])
        for k in range(n_classes):
            q = share * e[k]
            sums[k] += w * (q * (one - q))


@compiled(fastmath=_SUMS, error_model="numpy")
def soft_sums(
    scores: Array, weight: Array, levels: Array, sums: Array, scale: Array, shift: Array
) -> None:  # pragma: no cover
    """sums (K,): Σ_i w_i q_ik with q = softmax(z), z = 2^SQUARINGS·(scale∘scores − shift); levels (N,): log Σ_k e^z."""
    n_classes = scores.shape[1]
    series = TAYLOR.astype(scores.dtype)
    e, some = np.empty(n_classes, scores.dtype), np.zeros(n_classes, scores.dtype)
    for i in range(scores.shape[0]):
        top, total = _exponentials(scores[i], scale, shift, series, e)
        levels[i] = 2.0**SQUARINGS * top + np.log(np.float64(total))
        _add(some, scores.dtype.type(weight[i] / total), e)
        if i % PRECISE == PRECISE - 1 or i == scores.shape[0] - 1:
            for k in range(n_classes):
                sums[k] += some[k]
                some[k] = 0


@compiled(fastmath=_SUMS, error_model="numpy")
def soft_means(scores: Array, means: Array, scale: Array, shift: Array, values: Array) -> None:  # pragma: no cover
    """means (N,): Σ_k q_ik values_k with q = softmax(2^SQUARINGS·(scale∘scores − shift))."""
    series, e, light = TAYLOR.astype(scores.dtype), np.empty(len(values), scores.dtype), values.astype(scores.dtype)
    for i in range(scores.shape[0]):
        _, total = _exponentials(scores[i], scale, shift, series, e)
        means[i] = _dot(e, light) / np.float64(total)


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


@compiled(fastmath=_SUMS, error_model="numpy")
def margins_of_entries(
    starts: Array,
    ends: Array,
    weight: Array,
    sums: Array,
    classes: Array,
    scores: Array,
    masses: Array,
    p: Array,
    scale: float,
    shift: Array,
    with_columns: bool,
) -> None:  # pragma: no cover
    """`soft_decisions` and `soft_margins` of samples of which some entries are left.

    sums (2K,): hits, then columns if these are asked for.
    """
    n_classes, series = len(shift), TAYLOR.astype(scores.dtype)
    least, one = scores.dtype.type(-0.5), scores.dtype.type(1)
    for i in range(len(starts)):
        top, total = -scores.dtype.type(np.inf), scores.dtype.type(0)
        for entry in range(starts[i], ends[i]):
            z = scores[entry] * scale - shift[classes[entry]]
            p[entry] = z
            top = larger(z, top)
        for entry in range(starts[i], ends[i]):
            h = larger(p[entry] - top, least)
            power = series[6]
            for n in range(5, -1, -1):
                power = power * h + series[n]
            for _ in range(SQUARINGS):
                power *= power
            p[entry] = power
            total += power
        share, w = one / total, weight[i]
        for entry in range(starts[i], ends[i]):
            k = classes[entry]
            p[entry] *= share
            sums[k] += masses[entry] * p[entry]
            if with_columns:
                sums[n_classes + k] += w * p[entry]


@compiled(fastmath=_SUMS, error_model="numpy")
def slopes_of_entries(
    starts: Array,
    ends: Array,
    weight: Array,
    slopes: Array,
    classes: Array,
    masses: Array,
    p: Array,
    by_hits: Array,
    by_columns: Array,
) -> None:  # pragma: no cover
    """`soft_slopes` in the offsets, of samples of which some entries are left."""
    for i in range(len(starts)):
        w, mean = weight[i], 0.0
        if w == 0.0:
            continue
        for entry in range(starts[i], ends[i]):
            k = classes[entry]
            mean += p[entry] * (masses[entry] * by_hits[k] + w * by_columns[k])
        for entry in range(starts[i], ends[i]):
            k = classes[entry]
            slopes[k] += p[entry] * (masses[entry] * by_hits[k] + w * by_columns[k] - mean)
