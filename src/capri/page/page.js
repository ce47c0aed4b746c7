"use strict";
(() => {
  // ---------------------------------------------------------------------------------------------- what the page says
  const content = JSON.parse(document.getElementById("data").textContent);
  const { classes, views } = content;
  const K = classes.names.length;
  const PAGE = 25; // rows of a table at a time
  const LETTER = 7.2; // pixels that a bold letter takes, at most on average
  const MANY = 900; // classes that a picture shows one by one; more are drawn together
  const state = { view: views[0], group: -1, query: "", order: "", point: null };
  const byId = (id) => document.getElementById(id);
  const everyClass = Array.from({ length: K }, (_, k) => k);
  const lowered = classes.names.map((name) => name.toLowerCase());

  // ------------------------------------------------------------------------------------------------------ small tools
  const SVG = "http://www.w3.org/2000/svg";

  /** An element with attributes and children; text becomes text, never markup. */
  function make(tag, attributes = {}, ...children) {
    return fill(document.createElement(tag), attributes, children);
  }
  function draw(tag, attributes = {}, ...children) {
    return fill(document.createElementNS(SVG, tag), attributes, children);
  }
  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value === true) element.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return element;
  }
  const known = (value) => value !== null && value !== undefined;
  const minus = (text) => text.replace(/^-0\.0$/, "0.0").replace("-", "−");
  const percent = (value) => (known(value) ? minus((100 * value).toFixed(1)) : "–");
  const signed = (value) => (known(value) ? (value > 0 ? "+" : "") + minus((100 * value).toFixed(1)) : "–");
  const count = (value) => (known(value) ? Number(value.toPrecision(6)).toLocaleString("en") : "–");
  const plain = (value) => (known(value) ? minus(Number(value.toPrecision(3)).toString()) : "–");
  const isFlat = (values) => values.every((value) => value === values[0]);
  const mean = (values) => {
    const there = values.filter(known);
    return there.length ? there.reduce((a, b) => a + b, 0) / there.length : null;
  };
  const range = (values) => values.filter(known).reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const scale = ([a, b], [from, to]) => (v) => from + ((v - a) / (b - a || 1)) * (to - from);
  const say = (text) => { byId("said").textContent = text; };

  // ---------------------------------------------------------------------------------------------------------- classes
  const before = (k) => state.view.first.values[k];
  const after = (k) => (state.point === null ? state.view.second.values[k] : content.frontier.points[state.point].errors[k]);
  const change = (k) => (known(before(k)) && known(after(k)) ? after(k) - before(k) : null);
  const covered = (k) => (state.point === null && state.view.decided ? state.view.decided[k] : null); // that is decided
  const isThin = (k) => (state.view.samples[k] ?? 0) < content.thin;
  const amount = (k) => (classes.training ? classes.training[k] : classes.frequency ? classes.frequency[k] : null);

  const ORDERS = {
    common: { title: "from common to rare", key: (k) => -amount(k), available: Boolean(classes.training || classes.frequency) },
    before: { title: "by error before", key: (k) => -(before(k) ?? -1), available: true },
    change: { title: "by change", key: (k) => change(k) ?? 9, available: true },
    given: { title: "as in the data", key: (k) => k, available: true },
  };

  /** The classes that are looked at, in order. */
  function chosen() {
    const query = state.query.trim().toLowerCase();
    const kept = everyClass.filter((k) => (state.group < 0 || classes.group[k] === state.group) && lowered[k].includes(query));
    const { key } = ORDERS[state.order];
    const keys = new Map(kept.map((k) => [k, key(k)]));
    return kept.sort((i, j) => keys.get(i) - keys.get(j) || i - j);
  }

  function describe(k) {
    const [first, second] = [state.view.first, state.view.second];
    const lines = [`before ${percent(before(k))} % (${percent(first.low[k])} to ${percent(first.high[k])})`];
    const interval = state.point === null ? ` (${percent(second.low[k])} to ${percent(second.high[k])})` : "";
    lines.push(`after ${percent(after(k))} %${interval}, change ${signed(change(k))} points`);
    const samples = state.view.samples[k];
    const trained = classes.training ? `, trained on ${count(classes.training[k])}` : "";
    lines.push(samples ? `${count(samples)} samples here${isThin(k) ? " (thin)" : ""}${trained}` : `no sample here${trained}`);
    if (covered(k) !== null) lines.push(`${percent(covered(k))} % of them decided; the error after is of these`);
    if (state.view.fixed && state.point === null && samples) {
      lines.push(`${count(state.view.fixed[k])} became right, ${count(state.view.broken[k])} wrong`);
    }
    return lines;
  }

  // ------------------------------------------------------------------------------------------------------ the tooltip
  const tip = byId("tip");
  function showTip(event, title, lines) {
    tip.replaceChildren(make("b", {}, make("bdi", {}, title)), ...lines.map((line) => make("div", {}, line)));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4))}px`;
    tip.style.top = `${Math.max(4, event.clientY + 18 + height > innerHeight ? event.clientY - height - 12 : event.clientY + 18)}px`;
  }
  const hideTip = () => { tip.hidden = true; };

  // --------------------------------------------------------------------------------------------------------- pictures
  /** A picture with axes: `inner` draws into the box, in pixels. */
  function frame(host, { height, label, left = 40, right = 14, top = 12, bottom = 34 }) {
    const width = Math.max(280, Math.round(host.clientWidth || 700));
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    host.replaceChildren(svg);
    return { svg, width, height, left, top, right: width - right, bottom: height - bottom };
  }
  function percentAxis(box, y, ticks) {
    for (const tick of ticks) {
      box.svg.append(
        draw("line", { class: "grid", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }),
        draw("text", { x: box.left - 6, y: y(tick) + 4, "text-anchor": "end" }, `${Math.round(100 * tick)}`),
      );
    }
  }
  function ticksOf([low, high], about = 5) {
    const rough = (high - low || 1) / about;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough);
    const ticks = [];
    for (let t = Math.ceil(low / step) * step; t <= high + step / 1e6; t += step) ticks.push(Number(t.toPrecision(12)));
    return ticks;
  }
  const dots = (points) => points.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");
  const links = (pairs) => pairs.map(([x, y, v, w]) => `M${x.toFixed(1)} ${y.toFixed(1)}L${v.toFixed(1)} ${w.toFixed(1)}`).join("");
  const key = (...entries) => make("div", { class: "key" }, entries.map(([kind, text]) => make("span", { class: kind }, text)));
  function clipped(text, longest) {
    const letters = Array.from(text);
    return letters.length > longest ? `${letters.slice(0, longest - 1).join("")}…` : text;
  }

  // --------------------------------------------------------------------------------------------- the errors by class
  /** What stands side by side: each class, or neighbours drawn together where there are too many. */
  function columns(shown) {
    if (shown.length <= MANY) return shown.map((k) => ({ members: [k], before: before(k), after: after(k) }));
    const size = Math.ceil(shown.length / (MANY / 3));
    const found = [];
    for (let i = 0; i < shown.length; i += size) {
      const members = shown.slice(i, i + size);
      found.push({ members, before: mean(members.map(before)), after: mean(members.map(after)) });
    }
    return found;
  }

  function drawClasses() {
    const host = byId("classes-picture");
    const shown = chosen();
    const bars = columns(shown);
    const label = `Errors of ${shown.length} classes before and after, ${ORDERS[state.order].title}. The table below has the figures.`;
    const named = bars.length <= 24 && bars.every((bar) => bar.members.length === 1);
    const box = frame(host, { height: named ? 330 : 300, label, bottom: named ? 56 : 26 });
    const y = scale([0, 1], [box.bottom, box.top]);
    percentAxis(box, y, [0, 0.25, 0.5, 0.75, 1]);
    if (!bars.length) {
      box.svg.append(draw("text", { x: (box.left + box.right) / 2, y: y(0.5), "text-anchor": "middle" }, "no class matches"));
      return;
    }
    const slot = (box.right - box.left) / bars.length;
    const x = (i) => box.left + slot * (i + 0.5);
    const size = Math.max(2.2, Math.min(10, slot * 0.8));
    const there = bars.map((bar, i) => ({ ...bar, x: x(i) })).filter((bar) => known(bar.before) && known(bar.after));
    box.svg.append(
      draw("path", { class: "links", "stroke-width": Math.min(2, Math.max(0.6, slot * 0.3)), d: links(there.map((b) => [b.x, y(b.before), b.x, y(b.after)])) }),
      draw("path", { class: "dots-before-edge", "stroke-width": size + 1.2, d: dots(there.map((b) => [b.x, y(b.before)])) }),
      draw("path", { class: "dots-before", "stroke-width": size, d: dots(there.map((b) => [b.x, y(b.before)])) }),
      draw("path", { class: "dots-after", "stroke-width": size, d: dots(there.map((b) => [b.x, y(b.after)])) }),
    );
    for (const [kind, of] of [["mean-before", before], ["mean-after", after]]) {
      const level = mean(shown.map(of));
      if (known(level)) box.svg.append(draw("line", { class: kind, x1: box.left, x2: box.right, y1: y(level), y2: y(level) }));
    }
    const caption = named ? nameColumns(box, bars, x, slot) : groupColumns(box, shown, bars, x);
    const cursor = draw("line", { class: "cursor", y1: box.top, y2: box.bottom, visibility: "hidden" });
    box.svg.append(cursor);
    host.prepend(key(["is-before", `before, mean ${percent(mean(shown.map(before)))} %`], ["is-after", `${state.point === null ? "after" : "at this point"}, mean ${percent(mean(shown.map(after)))} %`], ["is-text", "class error, %"]));
    followClasses(host, box, bars, x, cursor);
    host.append(make("p", { class: "note" }, caption));
  }

  function nameColumns(box, bars, x, slot) {
    bars.forEach((bar, i) => {
      const k = bar.members[0];
      const steep = slot < 62;
      const text = clipped(classes.names[k], steep ? 12 : Math.floor(slot / 7.5));
      const at = { x: x(i), y: box.bottom + 17, "text-anchor": steep ? "end" : "middle", direction: "ltr" };
      if (steep) at.transform = `rotate(-38 ${x(i)} ${box.bottom + 12})`;
      box.svg.append(draw("text", at, text));
      if (!steep && classes.training) box.svg.append(draw("text", { x: x(i), y: box.bottom + 33, "text-anchor": "middle" }, count(classes.training[k])));
    });
    return classes.training && slot >= 62 ? "Each class with its number of training samples." : "";
  }

  function groupColumns(box, shown, bars, x) {
    const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.round(share * (bars.length - 1)));
    const counted = state.order === "common" && classes.training;
    for (const [place, i] of [...new Set(marks)].entries()) {
      const last = place === new Set(marks).size - 1;
      const k = bars[i].members[0];
      const text = counted ? count(classes.training[k]) : place ? "" : "";
      box.svg.append(draw("text", { x: x(i), y: box.bottom + 17, "text-anchor": place === 0 ? "start" : last ? "end" : "middle" }, text));
    }
    const together = bars[0].members.length > 1 ? `, each dot the mean of ${bars[0].members.length} neighbours` : "";
    const caption = `${count(shown.length)} classes ${ORDERS[state.order].title}${counted ? ", marked by their training samples" : ""}${together}`;
    return `${caption}.`;
  }

  /** The pointer and the arrow keys go from class to class. */
  function followClasses(host, box, bars, x, cursor) {
    const svg = box.svg;
    const tell = (i) => {
      const { members } = bars[i];
      cursor.setAttribute("visibility", "visible");
      cursor.setAttribute("x1", x(i));
      cursor.setAttribute("x2", x(i));
      if (members.length === 1) return [classes.names[members[0]], describe(members[0])];
      const names = `${clipped(classes.names[members[0]], 30)} … ${clipped(classes.names[members.at(-1)], 30)}`;
      return [`${members.length} classes`, [names, `mean before ${percent(bars[i].before)} %, after ${percent(bars[i].after)} %`]];
    };
    svg.addEventListener("pointermove", (event) => {
      const bounds = svg.getBoundingClientRect();
      const at = ((event.clientX - bounds.left) / bounds.width) * box.width;
      const i = Math.max(0, Math.min(bars.length - 1, Math.floor((at - box.left) / ((box.right - box.left) / bars.length))));
      showTip(event, ...tell(i));
    });
    svg.addEventListener("pointerleave", hideTip);
    const slider = make("div", {
      tabindex: 0, role: "slider", "aria-label": "Go through the classes of the picture with the arrow keys",
      "aria-valuemin": 1, "aria-valuemax": bars.length, "aria-valuenow": 1, "aria-valuetext": "not begun", class: "through",
    });
    let now = -1;
    slider.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") hideTip();
      if (step === undefined) return;
      event.preventDefault();
      now = Math.max(0, Math.min(bars.length - 1, now + step));
      const [title, lines] = tell(now);
      slider.setAttribute("aria-valuenow", now + 1);
      slider.setAttribute("aria-valuetext", `${title}: ${lines.join("; ")}`);
      const bounds = svg.getBoundingClientRect();
      showTip({ clientX: bounds.left + (x(now) / box.width) * bounds.width, clientY: bounds.top + bounds.height / 3 }, title, lines);
    });
    slider.addEventListener("blur", hideTip);
    slider.append(svg);
    host.append(slider);
  }

  // ----------------------------------------------------------------------------------------------------------- tables
  /** A table that sorts by its headings and shows some rows at a time. columns: title, key, cell, and how they look. */
  function table(host, { caption, columns, rows, sorted = null, page = PAGE, what = "rows" }) {
    const now = { by: sorted, down: false, at: 0 };
    const head = make("tr");
    const body = make("tbody");
    const pager = make("div", { class: "pager" });
    const ordered = () => {
      const list = [...rows()];
      if (now.by === null) return list;
      const { key: value } = columns[now.by];
      const keys = new Map(list.map((row) => [row, value(row)]));
      const missing = (v) => v === null || v === undefined;
      return list.sort((a, b) => {
        const [v, w] = [keys.get(a), keys.get(b)];
        if (missing(v) || missing(w)) return missing(v) - missing(w);
        return (typeof v === "string" ? v.localeCompare(w) : v - w) * (now.down ? -1 : 1);
      });
    };
    const headings = columns.map((column, c) => {
      const th = make("th", { scope: "col", class: column.kind });
      if (column.key) th.append(make("button", { type: "button", onclick: () => sortBy(c) }, column.title));
      else th.append(make("span", { class: "unseen" }, column.title));
      return th;
    });
    head.append(...headings);
    function sortBy(c) {
      now.down = now.by === c ? !now.down : columns[c].down === true;
      [now.by, now.at] = [c, 0];
      show();
      say(`sorted by ${columns[c].title}, ${now.down ? "largest" : "smallest"} first`);
    }
    function show() {
      const list = ordered();
      now.at = Math.min(now.at, Math.max(0, Math.floor((list.length - 1) / page) * page));
      headings.forEach((th, c) => {
        if (c === now.by) th.setAttribute("aria-sort", now.down ? "descending" : "ascending");
        else th.removeAttribute("aria-sort");
      });
      const cells = (row) => columns.map((column, c) => make(c ? "td" : "th", { class: column.kind, scope: c ? null : "row" }, column.cell(row)));
      body.replaceChildren(...list.slice(now.at, now.at + page).map((row) => make("tr", {}, cells(row))));
      const to = (at, text, off) => make("button", { type: "button", disabled: off, onclick: () => { now.at = at; show(); } }, text);
      const last = Math.min(now.at + page, list.length);
      pager.hidden = list.length <= page && rows().length === K;
      pager.replaceChildren(
        ...(list.length > page ? [to(Math.max(0, now.at - page), "Previous", now.at === 0), to(now.at + page, "Next", last >= list.length)] : []),
        make("span", {}, list.length ? `${count(now.at + 1)}–${count(last)} of ${count(list.length)} ${what}` : `no ${what}`),
      );
    }
    const scroller = make("div", { class: "tablebox", tabindex: 0, role: "region", "aria-label": caption },
      make("table", {}, make("caption", { class: "unseen" }, caption), make("thead", {}, head), body));
    host.classList.remove("tablebox");
    host.replaceChildren(scroller, pager);
    show();
    return { show, first: () => { now.at = 0; show(); }, sortBy };
  }

  const name = (k) => make("bdi", { title: classes.names[k].length > 40 ? classes.names[k] : null }, clipped(classes.names[k], 60));
  const changeCell = (value, good = -1) => make("span", { class: value * good > 0.0005 ? "down" : value * good < -0.0005 ? "up" : null }, signed(value));

  /** A class in a row: both intervals and both dots. */
  function strip(k) {
    const x = scale([0, 1], [5, 145]);
    const svg = draw("svg", { width: 150, height: 18, "aria-hidden": "true" }, draw("line", { class: "grid", x1: 5, x2: 145, y1: 9, y2: 9 }));
    const bars = [["dots-before", "stroke-before", state.view.first, before, 6], ["dots-after", "whisker", state.view.second, after, 12]];
    for (const [dot, whisker, errors, value, y] of bars) {
      if (!known(value(k))) continue;
      if (value === before || state.point === null) svg.append(draw("line", { class: whisker, x1: x(errors.low[k]), x2: x(errors.high[k]), y1: y, y2: y, "stroke-width": 1.2 }));
      svg.append(draw("path", { class: dot, "stroke-width": 6, d: dots([[x(value(k)), y]]) }));
    }
    return svg;
  }

  function classColumns() {
    const columns = [
      { title: "class", kind: "name text", key: (k) => lowered[k], cell: name },
      { title: "trained on", kind: "wide", key: (k) => classes.training[k], cell: (k) => count(classes.training[k]), down: true, needs: classes.training },
      { title: "samples", key: (k) => state.view.samples[k], cell: samplesCell },
      { title: "before", key: before, cell: (k) => percent(before(k)), down: true },
      { title: "after", key: after, cell: (k) => percent(after(k)), down: true },
      { title: "change", key: change, cell: (k) => (known(change(k)) ? changeCell(change(k)) : "–") },
      { title: "decided", kind: "wide", key: covered, cell: (k) => percent(covered(k)), needs: views.some((v) => v.decided) },
      { title: "fixed / broken", kind: "wide", key: (k) => state.view.fixed[k] - state.view.broken[k], cell: turned, down: true, needs: views.every((v) => v.fixed) },
      { title: "before (upper) and after (lower) with 90 % intervals, 0 to 100 %", kind: "wide text", cell: strip },
      { title: "group", kind: "wide text screen", key: (k) => classes.group[k], cell: (k) => classes.groups[classes.group[k]], needs: classes.groups.length },
    ];
    return columns.filter((column) => !("needs" in column) || column.needs);
  }
  function samplesCell(k) {
    const samples = state.view.samples[k];
    if (!samples) return make("span", { class: "thin" }, "none");
    return isThin(k) ? make("span", {}, make("span", { class: "thin" }, "thin "), count(samples)) : count(samples);
  }
  function turned(k) {
    if (state.point !== null) return "–";
    const [fixed, broken] = [state.view.fixed[k], state.view.broken[k]];
    return make("span", { title: state.view.clear[k] ? "beyond chance, taken by itself" : null }, `${fixed} / ${broken}${state.view.clear[k] ? " *" : ""}`);
  }

  // --------------------------------------------------------------------------------------------- who gains, who pays
  function drawMovers() {
    const sides = [["Who gains", "Classes whose errors fall most", -1], ["Who pays", "Classes whose errors rise most", 1]];
    byId("movers-tables").replaceChildren(...sides.map(([title, caption, sign]) => {
      const host = make("div");
      const moved = everyClass.filter((k) => sign * (change(k) ?? 0) > 0).sort((i, j) => sign * (change(j) - change(i)) || i - j);
      const mean = moved.length ? `, by ${percent(Math.abs(moved.reduce((sum, k) => sum + change(k), 0) / moved.length))} points on average` : "";
      table(host, {
        caption, page: 10, what: "classes", rows: () => moved,
        columns: [
          { title: "class", kind: "name text", cell: name, key: (k) => lowered[k] },
          { title: "samples", cell: samplesCell, key: (k) => state.view.samples[k] },
          { title: "before", cell: (k) => percent(before(k)), key: before, down: true },
          { title: "after", cell: (k) => percent(after(k)), key: after, down: true },
          { title: "change", cell: (k) => changeCell(change(k)), key: change, down: sign > 0 },
        ],
      });
      return make("div", {}, make("h3", {}, title), make("p", { class: "note" }, `${count(moved.length)} of ${count(K)} classes${mean}.`), host);
    }));
  }

  // ------------------------------------------------------------------------------------------------- where errors go
  function drawConfusions() {
    const found = state.view.confusions;
    if (!byId("confusions")) return;
    byId("confusions").hidden = !found;
    if (!found) return;
    const order = found.classes.map((_, i) => i).sort((i, j) => amount(found.classes[j]) - amount(found.classes[i]) || i - j);
    const labels = [...order.map((i) => classes.names[found.classes[i]]), ...(found.complete ? [] : ["all others"])];
    if (!found.complete) order.push(found.classes.length);
    const what = byId("confusions-what").value;
    const share = (rows) => order.map((i) => {
      const sum = rows[i].reduce((a, b) => a + b, 0);
      return order.map((j) => (sum ? rows[i][j] / sum : null));
    });
    const [was, is] = [share(found.before), share(found.after)];
    const shown = what === "before" ? was : what === "after" ? is : is.map((row, i) => row.map((v, j) => (known(v) ? v - was[i][j] : null)));
    drawMatrix(byId("confusions-picture"), labels, shown, was, is, what === "change");
    byId("confusions-note").textContent = `Rows are true classes, columns decisions${amount(0) === null ? "" : ", both from common to rare"}; cells are shares of the row, in ${what === "change" ? "points: blue is more, orange less" : "%"}.` +
      (found.complete ? "" : ` The ${found.classes.length} classes that are confused most; the other ${count(K - found.classes.length)} are drawn together.`) +
      (state.view.decided ? " What is left undecided is not counted after." : "");
    table(byId("confusions-table"), {
      caption: "The most frequent confusions", page: 15, what: "confusions", rows: () => found.pairs,
      columns: [
        { title: "class", kind: "name text", cell: (p) => name(p.true), key: (p) => lowered[p.true] },
        { title: "taken for", kind: "name text", cell: (p) => name(p.predicted), key: (p) => lowered[p.predicted] },
        { title: "before", cell: (p) => count(p.before), key: (p) => p.before, down: true },
        { title: "after", cell: (p) => count(p.after), key: (p) => p.after, down: true },
        { title: "change", cell: (p) => `${p.after > p.before ? "+" : ""}${minus(count(p.after - p.before))}`, key: (p) => p.after - p.before, down: true },
      ],
    });
  }

  function drawMatrix(host, labels, shown, was, is, diverging) {
    const n = labels.length;
    const left = n > 12 ? 78 : 96;
    const size = Math.min(460, Math.max(280, host.clientWidth || 400) - left);
    const box = frame(host, { height: size + 74, left, top: 4, right: 4, bottom: 70, label: "Confusions of the classes as a matrix; the table beside it has the most frequent ones." });
    const cell = Math.min(size, box.right - left) / n;
    const off = shown.flatMap((row, i) => row.filter((v, j) => known(v) && (diverging || i !== j)).map(Math.abs));
    const most = Math.max(0.01, ...off);
    shown.forEach((row, i) => row.forEach((v, j) => {
      if (!known(v)) return;
      const strength = Math.min(1, Math.abs(v) / most);
      box.svg.append(draw("rect", {
        x: (left + j * cell).toFixed(2), y: (4 + i * cell).toFixed(2), width: Math.max(0.5, cell - 0.6).toFixed(2), height: Math.max(0.5, cell - 0.6).toFixed(2),
        class: v >= 0 ? "fill-after" : "fill-before", "fill-opacity": (!diverging && i === j ? 0.06 : 0.04 + 0.96 * strength).toFixed(3),
      }));
    }));
    const step = Math.ceil(n / Math.max(1, Math.floor(size / 13)));
    labels.forEach((label, i) => {
      if (i % step) return;
      const middle = 4 + (i + 0.5) * cell;
      box.svg.append(draw("text", { x: left - 6, y: middle + 4, "text-anchor": "end", direction: "ltr" }, clipped(label, 12)));
      const [x, y] = [left + (i + 0.5) * cell + 3, 4 + n * cell + 8];
      box.svg.append(draw("text", { x, y, "text-anchor": "end", direction: "ltr", transform: `rotate(-55 ${x} ${y})` }, clipped(label, 11)));
    });
    box.svg.addEventListener("pointermove", (event) => {
      const bounds = box.svg.getBoundingClientRect();
      const at = (v, from) => Math.floor((v - from) / cell);
      const zoom = box.width / bounds.width;
      const [j, i] = [at((event.clientX - bounds.left) * zoom, left), at((event.clientY - bounds.top) * zoom, 4)];
      if (i < 0 || j < 0 || i >= n || j >= n) return hideTip();
      showTip(event, labels[i], [i === j ? "decided rightly" : `taken for ${labels[j]}`, `before ${percent(was[i][j])} %, after ${percent(is[i][j])} % of its samples`]);
    });
    box.svg.addEventListener("pointerleave", hideTip);
  }

  // ------------------------------------------------------------------------------------------------------ the offsets
  function drawOffsets() {
    const frequent = amount(0) !== null;
    byId("offsets-frequency").hidden = !frequent;
    if (frequent) scatter(byId("offsets-frequency"), amount, classes.training ? "training samples" : "class frequency, as tuning knew it", true);
    scatter(byId("offsets-difficulty"), before, "error before, %", false);
  }

  function scatter(host, value, title, logarithmic) {
    const told = isFlat(classes.offsets) && !isFlat(classes.multipliers) ? classes.multipliers : classes.offsets;
    const there = everyClass.filter((k) => known(value(k)) && (!logarithmic || value(k) > 0));
    const box = frame(host, { height: 280, label: `Offset of each class against ${title}. The table below has the figures.`, left: 46 });
    if (!there.length) return;
    const own = (k) => (classes.residual && told === classes.offsets ? classes.residual[k] : 0);
    const place = logarithmic ? (k) => Math.log10(value(k)) : value;
    const [xs, ys] = [range(there.map(place)), range(there.flatMap((k) => [told[k], told[k] - own(k)]))];
    const pad = (ys[1] - ys[0] || 1) * 0.06;
    const x = scale(xs[0] === xs[1] ? [xs[0] - 1, xs[1] + 1] : xs, [box.left + 8, box.right - 8]);
    const y = scale([ys[0] - pad, ys[1] + pad], [box.bottom, box.top]);
    for (const tick of ticksOf(ys)) {
      box.svg.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: y(tick), y2: y(tick) }),
        draw("text", { x: box.left - 6, y: y(tick) + 4, "text-anchor": "end" }, plain(tick)));
    }
    const whole = ticksOf(xs).filter((t) => !logarithmic || Number.isInteger(t));
    const marks = logarithmic && whole.length < 2 ? xs : whole;
    for (const tick of marks) {
      const text = logarithmic ? (classes.training ? count(Math.round(10 ** tick)) : plain(10 ** tick)) : `${Math.round(100 * tick)}`;
      box.svg.append(draw("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle" }, text));
    }
    const size = there.length > 2000 ? 2 : there.length > 300 ? 3.5 : 7;
    const at = there.map((k) => [x(place(k)), y(told[k]), k]);
    if (classes.residual) {
      const onMap = there.map((k) => [x(place(k)), y(told[k] - own(k))]);
      box.svg.append(draw("path", { class: "links", "stroke-width": 0.8, d: links(at.map(([v, w], i) => [v, w, ...onMap[i]])) }),
        draw("path", { class: "dots-own", "stroke-width": size + 2.5, d: dots(onMap) }),
        draw("path", { class: "dots-paper", "stroke-width": size - 0.5, d: dots(onMap) }));
    }
    box.svg.append(draw("path", { class: "dots-after", "stroke-width": classes.residual ? size - 1 : size, d: dots(at) }),
      draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 32, "text-anchor": "middle" }, title),
      
    );
    host.prepend(key(["is-after", told === classes.offsets ? "offset of the class" : "multiplier of the class"], ...(classes.residual ? [["is-map", "what the map says"]] : [])));
    box.svg.addEventListener("pointermove", (event) => {
      const bounds = box.svg.getBoundingClientRect();
      const zoom = box.width / bounds.width;
      const [v, w] = [(event.clientX - bounds.left) * zoom, (event.clientY - bounds.top) * zoom];
      let [nearest, distance] = [null, 900];
      for (const [px, py, k] of at) {
        const d = (px - v) ** 2 + (py - w) ** 2;
        if (d < distance) [nearest, distance] = [k, d];
      }
      if (nearest === null) return hideTip();
      showTip(event, classes.names[nearest], offsetLines(nearest));
    });
    box.svg.addEventListener("pointerleave", hideTip);
  }
  function offsetLines(k) {
    const lines = [`offset ${plain(classes.offsets[k])}`];
    if (classes.residual) lines.push(`${plain(classes.offsets[k] - classes.residual[k])} by the map, ${plain(classes.residual[k])} of its own`);
    if (classes.multipliers[k] !== 1) lines.push(`multiplier ${plain(classes.multipliers[k])}`);
    if (classes.training) lines.push(`trained on ${count(classes.training[k])}`);
    return [...lines, `error before ${percent(before(k))} %`];
  }
  function tableOfOffsets() {
    const columns = [
      { title: "class", kind: "name text", key: (k) => lowered[k], cell: name },
      { title: "trained on", key: (k) => classes.training[k], cell: (k) => count(classes.training[k]), down: true, needs: classes.training },
      { title: "error before, %", key: before, cell: (k) => percent(before(k)), down: true },
      { title: "offset", key: (k) => classes.offsets[k], cell: (k) => plain(classes.offsets[k]) },
      { title: "by the map", key: (k) => classes.offsets[k] - classes.residual[k], cell: (k) => plain(classes.offsets[k] - classes.residual[k]), needs: classes.residual },
      { title: "of its own", key: (k) => classes.residual[k], cell: (k) => plain(classes.residual[k]), needs: classes.residual },
      { title: "multiplier", key: (k) => classes.multipliers[k], cell: (k) => plain(classes.multipliers[k]), needs: classes.multipliers.some((m) => m !== 1) },
    ].filter((column) => !("needs" in column) || column.needs);
    table(byId("offsets-table"), { caption: "The offsets of the classes", what: "classes", rows: () => everyClass, columns });
  }

  // --------------------------------------------------------------------------------------------------------- the line
  function drawLine() {
    const { line } = content;
    if (!line) return;
    const marks = Object.entries(line.marks).map(([title, mark]) => ({ title, ...mark }));
    const box = frame(byId("line-picture"), { height: 300, left: 44, bottom: 40, label: "The objective for every strength of logit adjustment. The table below has the marked points." });
    const inner = [...line.tau, ...marks.map((m) => m.tau)];
    const [a, b] = range(inner);
    const ends = [a - 0.04 * (b - a || 1), b + 0.04 * (b - a || 1)];
    const ys = range([...line.low, ...line.high, ...marks.map((m) => m.value)]);
    const pad = (ys[1] - ys[0] || 0.1) * 0.08;
    const low = Math.max(0, ys[0] - 1.6 * pad);
    const x = scale(ends, [box.left, box.right]);
    const y = scale([low, ys[1] + pad], [box.bottom, box.top]);
    percentAxis(box, y, ticksOf([low, ys[1] + pad]));
    for (const tick of ticksOf(ends, 8)) box.svg.append(draw("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle" }, plain(tick)));
    const edges = [ends[0], ...line.tau, ends[1]];
    const steps = (values) => values.map((v, i) => [[x(edges[i]), y(v)], [x(edges[i + 1]), y(v)]]).flat();
    const outline = [...steps(line.high), ...steps(line.low).reverse()].map(([v, w]) => `${v.toFixed(1)} ${w.toFixed(1)}`).join("L");
    box.svg.append(draw("path", { class: "band", "stroke-width": 1.4, "stroke-linejoin": "round", d: `M${outline}Z` }),
      draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle" }, "strength τ"));
    const levels = marks.map((mark) => [x(mark.tau) - 7, x(mark.tau) + 7, y(mark.value) + 4]); // that are taken
    [...marks].reverse().forEach((mark) => { // the policy first
      const called = MARKS[mark.title] ?? mark.title;
      const text = box.width < 560 ? called.split(" (")[0] : `${called}: ${percent(mark.value)} %`;
      const wide = LETTER * text.length;
      const start = Math.max(box.left, Math.min(x(mark.tau) + 8, box.right - wide));
      const taken = (level) => levels.some(([from, to, at]) => start < to && from < start + wide && Math.abs(at - level) < 14);
      const steps = [-12, 20, -26, 34, -40, 48, -54, 62, -68, -82].map((step) => y(mark.value) + step);
      const level = steps.find((at) => at > 12 && at <= box.bottom && !taken(at)) ?? steps[0];
      levels.push([start, start + wide, level]);
      box.svg.append(draw("text", { class: "strong", x: start, y: level }, text));
    });
    marks.forEach((mark) => {
      box.svg.append(draw("path", { class: mark.title === "chosen" ? "dots-own" : "dots-before", "stroke-width": 9, d: dots([[x(mark.tau), y(mark.value)]]) }));
    });
    table(byId("line-table"), {
      caption: "Marked points of the line", what: "points", rows: () => marks,
      columns: [
        { title: "point", kind: "text", key: (m) => m.title, cell: (m) => MARKS[m.title] ?? m.title },
        { title: "τ", key: (m) => m.tau, cell: (m) => plain(m.tau) },
        { title: "objective, %", key: (m) => m.value, cell: (m) => percent(m.value) },
      ],
    });
  }
  const MARKS = { unadjusted: "as it was", "LA, tuned": "τ tuned", chosen: "this policy (beside the line)" };

  // ------------------------------------------------------------------------------------------------------- the ladder
  function drawLadder() {
    const values = content.ladder.flatMap((rung) => [0, rung.gain, ...(rung.interval ?? [])]);
    const x = scale(range(values), [6, 214]);
    for (const cell of document.querySelectorAll("[data-rung]")) {
      const rung = content.ladder[Number(cell.dataset.rung)];
      const svg = draw("svg", { width: 220, height: 18, "aria-hidden": "true" }, draw("line", { class: "axis", x1: x(0), x2: x(0), y1: 0, y2: 18 }));
      if (rung.interval) svg.append(draw("line", { class: "whisker", "stroke-width": 2, x1: x(rung.interval[0]), x2: x(rung.interval[1]), y1: 9, y2: 9 }));
      svg.append(draw("path", { class: "dots-after", "stroke-width": 9, d: dots([[x(rung.gain), 9]]) }));
      cell.replaceChildren(svg);
    }
  }

  // ------------------------------------------------------------------------------------------------------ the trade-off
  /** The slider along the frontier: each place is a policy, and the classes show its errors. */
  function setUpTradeoff() {
    const curve = content.frontier;
    const host = byId("tradeoff");
    if (!curve || curve.points.length < 2) return;
    const { of, against } = host.dataset;
    const at = (point) => `${of} ${percent(point.value)} %, ${against} ${percent(point.price)} %`;
    const far = (point) => (point.value - curve.policy.value) ** 2 + (point.price - curve.policy.price) ** 2;
    const nearest = curve.points.reduce((best, point, i) => (far(point) < far(curve.points[best]) ? i : best), 0);
    const picture = make("div", { class: "picture" });
    const readout = make("p", { class: "readout", id: "tradeoff-readout" });
    const slider = make("input", { type: "range", id: "tradeoff-at", min: 0, max: curve.points.length - 1, step: 1, value: nearest });
    const back = make("button", { type: "button" }, "Back to this policy");
    const tabled = make("div");
    host.hidden = false;
    host.append(
      make("h3", {}, make("label", { for: "tradeoff-at" }, `What else could be had: ${of} for its price in ${against}`)),
      make("div", { class: "tradeoff" }, make("div", {}, slider, readout, back), picture),
      make("p", { class: "note" }, `Each place is the best ${of} found at its price, a policy of its own. Figures are ${curve.kind === "test" ? "of test samples" : "of the samples that tuned, on the bright side"}.`),
      make("details", {}, make("summary", {}, "The trade-offs as a table"), tabled),
    );

    function show() {
      const i = state.point;
      const now = i === null ? curve.policy : curve.points[i];
      readout.textContent = `${i === null ? "This policy" : `Point ${i + 1} of ${curve.points.length}`}: ${at(now)}`;
      slider.setAttribute("aria-valuetext", readout.textContent);
      back.disabled = i === null;
      drawCurve(picture, curve, now, { of, against });
    }
    function go(i) {
      state.point = i;
      if (i !== null) {
        state.view = views.find((view) => view.kind === curve.kind);
        document.querySelector(`[name=view][value="${views.indexOf(state.view)}"]`).checked = true;
      } else slider.value = nearest;
      show();
      drawView(true);
    }
    slider.addEventListener("input", () => go(Number(slider.value)));
    back.addEventListener("click", () => { go(null); slider.focus(); });
    table(tabled, {
      caption: "Trade-offs", what: "points", rows: () => curve.points.map((_, i) => i),
      columns: [
        { title: "point", kind: "text", key: (i) => i, cell: (i) => `${i + 1}` },
        ...[["", curve.points], [", tuned on", curve.tuned], [`, ${curve.held_out}`, curve.held_out ? curve.held : []]].flatMap(([where, points]) => (points.length ? [
          { title: `${against}${where}, %`, key: (i) => points[i].price, cell: (i) => percent(points[i].price) },
          { title: `${of}${where}, %`, key: (i) => points[i].value, cell: (i) => percent(points[i].value) },
        ] : [])),
      ],
    });
    tradeoff.show = show;
    tradeoff.leave = () => { slider.value = nearest; show(); };
    show();
  }
  const tradeoff = { show: () => null, leave: () => null };

  function drawCurve(host, curve, now, { of, against }) {
    const box = frame(host, { height: 190, left: 44, bottom: 38, label: `${of} against ${against}, with the place of the slider. The table below has the figures.` });
    const marked = [[curve.unadjusted, "as it was", "dots-before"], [curve.policy, "this policy", "dots-own"]];
    const all = [...curve.points, ...marked.map(([point]) => point)];
    const grown = ([a, b]) => [a - 0.07 * (b - a || 0.02), b + 0.07 * (b - a || 0.02)];
    const [xs, ys] = [grown(range(all.map((p) => p.price))), grown(range(all.map((p) => p.value)))];
    const [x, y] = [scale(xs, [box.left, box.right]), scale(ys, [box.bottom, box.top])];
    percentAxis(box, y, ticksOf(ys, 4));
    for (const tick of ticksOf(xs, 5)) box.svg.append(draw("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle" }, `${Number((100 * tick).toPrecision(3))}`));
    const way = curve.points.map((p) => [x(p.price), y(p.value)]);
    box.svg.append(
      draw("path", { class: "whisker", "stroke-width": 1.5, d: `M${way.map(([v, w]) => `${v.toFixed(1)} ${w.toFixed(1)}`).join("L")}` }),
      draw("path", { class: "dots-after", "stroke-width": 6, d: dots(way) }),
    );
    for (const [point, title, kind] of marked) {
      const end = x(point.price) > (box.left + box.right) / 2;
      box.svg.append(draw("path", { class: kind, "stroke-width": 9, d: dots([[x(point.price), y(point.value)]]) }),
        draw("text", { x: x(point.price) + (end ? -9 : 9), y: y(point.value) - 6, "text-anchor": end ? "end" : "start", class: "strong" }, title));
    }
    box.svg.append(
      draw("circle", { class: "here", cx: x(now.price), cy: y(now.value), r: 8 }),
      draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 33, "text-anchor": "middle" }, `${against}, % (up: ${of}, %)`),
    );
  }

  // ------------------------------------------------------------------------------------------------ the page as a whole
  const KINDS = {
    test: "Figures are of test samples, which tuning has not seen.",
    "out of fold": "Figures are out of fold: each validation sample is judged by a tuning that has not seen it.",
    "in sample": "Figures are of the samples that tuned: after tuning they are on the bright side.",
  };
  const tables = {};

  function drawView(stay = false) {
    const at = state.point === null ? "" : `Class errors at point ${state.point + 1} of the trade-off. `;
    const open = !content.abstains ? "" : state.point === null && state.view.decided
      ? " Errors after are of what is decided." : " Every sample is decided here.";
    byId("view-note").textContent = `${at}${KINDS[state.view.kind]}${open}`;
    drawClasses();
    tables.classes[stay ? "show" : "first"]();
    drawMovers();
    drawConfusions();
  }
  function drawAll() {
    drawClasses();
    drawConfusions();
    drawOffsets();
    drawLine();
    tradeoff.show();
  }

  function setUpControls() {
    const order = byId("order");
    for (const [id, { title, available }] of Object.entries(ORDERS)) if (available) order.append(make("option", { value: id }, title));
    state.order = order.value;
    order.addEventListener("change", () => { state.order = order.value; drawClasses(); });
    const group = byId("group");
    byId("group-label").hidden = !classes.groups.length;
    group.append(make("option", { value: -1 }, "all"));
    classes.groups.forEach((title, g) => {
      const size = classes.group.filter((of) => of === g).length;
      if (size) group.append(make("option", { value: g }, `${title}: ${count(size)}`));
    });
    const narrowed = () => {
      drawClasses();
      tables.classes.first();
      say(`${chosen().length} classes`);
    };
    group.addEventListener("change", () => { state.group = Number(group.value); narrowed(); });
    let waiting = 0;
    byId("search").addEventListener("input", (event) => {
      state.query = event.target.value;
      clearTimeout(waiting);
      waiting = setTimeout(narrowed, K > MANY ? 120 : 0);
    });
    for (const radio of document.querySelectorAll("[name=view]")) {
      radio.addEventListener("change", () => {
        [state.view, state.point] = [views[Number(radio.value)], null];
        tradeoff.leave();
        drawView();
      });
    }
    byId("confusions-what")?.addEventListener("change", drawConfusions);
    tables.classes = table(byId("classes-table"), {
      caption: "Each class, before and after", columns: classColumns(), rows: chosen, what: "classes",
    });
  }

  function setUpTheme() {
    const button = byId("theme");
    const root = document.documentElement;
    const isDark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const tell = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-pressed", String(isDark())); };
    button.hidden = false;
    button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; tell(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
    tell();
  }

  setUpTheme();
  setUpControls();
  setUpTradeoff();
  drawView();
  drawOffsets();
  drawLine();
  drawLadder();
  byId("offsets-table").closest("details").addEventListener("toggle", tableOfOffsets, { once: true });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; requestAnimationFrame(drawAll); } });
  document.documentElement.dataset.ready = "true";
})();
