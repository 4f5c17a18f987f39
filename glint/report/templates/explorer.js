"use strict";
// The rollout explorer. Rows are columns of small integers; texts stand once in lists. Models wrote the texts: they only ever become text nodes.
(() => {
  const data = JSON.parse(document.getElementById("explorer-data").textContent);
  const { columns, values, sources, runs } = data;
  const ROWS_A_PAGE = 50, LIKELIEST = 5, CONTROL_IDS = 4, EOS = 2;
  const PHASES = { before: "before RL", after: "after RL", rollouts: "in RL" };
  const at = (id) => document.getElementById(id);
  const count = columns.source.length;
  const typed = Object.fromEntries(Object.entries(columns).map(([name, list]) => [name, Int32Array.from(list)]));
  const lower = {
    completion: values.completion.map((text) => text.toLowerCase()),
    reason: values.reason.map((text) => text.toLowerCase()),
    task: values.task.map((task) => task[0].toLowerCase()),
  };
  const value = (name, row) => values[name][typed[name][row]];
  const statuses = statusOfRows();
  let found = [], first = 0;

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  function statusOfRows() {
    return Array.from({ length: count }, (_, row) => {
      const verdict = value("verdict", row), suite = value("property", row);
      return verdict === "passed" && suite && suite !== "passed" ? "wrong" : verdict;
    });
  }

  function options(select, labels, all) {
    const chosen = select.value;
    const items = labels.map(([key, label]) => make("option", { value: key, textContent: label }));
    select.replaceChildren(...(all ? [make("option", { value: "", textContent: all })] : []), ...items);
    select.value = labels.some(([key]) => String(key) === chosen) ? chosen : all ? "" : select.options[0]?.value ?? "";
  }
  const distinct = (list) => [...new Set(list)].map((one) => [one, String(one)]);

  // Which runs the three selects name.
  function pickedRuns() {
    const [study, arm, seed] = ["study", "arm", "seed"].map((id) => at(id).value);
    return runs.filter((run) => (!study || run.study === study) && (!arm || run.arm === arm) && (!seed || String(run.seed) === seed));
  }

  function offerRuns() {
    options(at("study"), distinct(runs.map((run) => run.study)), "all");
    const ofStudy = runs.filter((run) => !at("study").value || run.study === at("study").value);
    options(at("arm"), distinct(ofStudy.map((run) => run.arm)), "all");
    const ofArm = ofStudy.filter((run) => !at("arm").value || run.arm === at("arm").value);
    options(at("seed"), distinct(ofArm.map((run) => run.seed)), "all");
  }

  function allowedSources() {
    const allowed = new Uint8Array(sources.length), phase = at("phase").value;
    for (const run of pickedRuns())
      for (const name of Object.keys(PHASES)) if (!phase || phase === name) allowed[run[name]] = 1;
    return allowed;
  }

  // The texts of one list that hold the searched words, or null where nothing is searched.
  const hits = (name, words) => Uint8Array.from(lower[name], (text) => text.includes(words));

  function matches() {
    const words = at("search").value.trim().toLowerCase();
    const [family, mode] = ["family", "mode"].map((id) => (at(id).value ? values[id].indexOf(at(id).value) : -1));
    const task = at("task").value === "" ? -1 : Number(at("task").value);
    const status = at("status").value, allowed = allowedSources();
    const texts = words ? ["completion", "reason", "task"].map((name) => [typed[name], hits(name, words)]) : null;
    const kept = [];
    for (let row = 0; row < count; row += 1) {
      if (!allowed[typed.source[row]]) continue;
      if (family >= 0 && typed.family[row] !== family) continue;
      if (task >= 0 && typed.task[row] !== task) continue;
      if (mode >= 0 && typed.mode[row] !== mode) continue;
      if (status && statuses[row] !== status) continue;
      if (texts && !texts.some(([column, hit]) => hit[column[row]])) continue;
      kept.push(row);
    }
    return kept;
  }

  function offerTasks() {
    const allowed = allowedSources(), family = values.family.indexOf(at("family").value), there = new Set();
    if (family >= 0)
      for (let row = 0; row < count; row += 1) if (typed.family[row] === family && allowed[typed.source[row]]) there.add(typed.task[row]);
    options(at("task"), [...there].map((task) => [task, values.task[task][0]]), family >= 0 ? "all" : "pick a family");
    at("task").disabled = family < 0;
  }

  function filter() {
    const began = performance.now();
    found = matches();
    first = 0;
    draw();
    at("count").dataset.filterMs = (performance.now() - began).toFixed(2);
  }

  function draw() {
    const shown = found.slice(first, first + ROWS_A_PAGE);
    const items = [];
    let task = -1;
    for (const row of shown) {
      if (typed.task[row] !== task) items.push(heading(row));
      task = typed.task[row];
      items.push(item(row));
    }
    at("list").replaceChildren(...items);
    at("count").textContent = `${found.length} of ${count} rows`;
    at("count").dataset.found = found.length;
    at("page").textContent = found.length ? `${first + 1} to ${first + shown.length}` : "none";
    at("previous").disabled = first === 0;
    at("next").disabled = first + ROWS_A_PAGE >= found.length;
  }

  const heading = (row) => make("li", { className: "task", textContent: `${value("family", row)}: ${value("task", row)[0]}` });

  function mark(status) {
    const badge = make("span", { className: "mark", textContent: status === "wrong" ? "rewarded, wrong" : status });
    badge.dataset.status = status;
    return badge;
  }

  function item(row) {
    const phase = sources[typed.source[row]];
    const how = phase === "rollouts" ? `group ${typed.group[row]}` : value("mode", row);
    const summary = make(
      "summary",
      {},
      mark(statuses[row]),
      make("span", { className: "soft", textContent: `${PHASES[phase]}, ${how}` }),
      make("code", { textContent: value("completion", row).replaceAll("\n", "⏎") }),
      make("span", { className: "soft", textContent: `${typed.cases_passed[row]}/${typed.cases_total[row]}` }),
    );
    const details = make("details", {}, summary);
    details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(body(row)); });
    const element = make("li", { className: "row" }, details);
    element.dataset.row = row;
    element.dataset.status = statuses[row];
    return element;
  }

  function runsOf(row) {
    const source = typed.source[row], phase = sources[source];
    return pickedRuns().filter((run) => run[phase] === source);
  }

  function facts(row) {
    const phase = sources[typed.source[row]], suite = value("property", row);
    const agrees = suite === value("verdict", row) ? "agrees" : "disagrees";
    return [
      ["Run", runsOf(row).map((run) => `${run.study}, ${run.arm}, seed ${run.seed}`).join("; ")],
      ["Written", `${PHASES[phase]}, ${value("mode", row)}, sample ${typed.sample[row]}, ${typed.tokens[row]} tokens, ended by ${value("ended", row)}`],
      ["Hidden cases", `${value("verdict", row)}, ${typed.cases_passed[row]} of ${typed.cases_total[row]}`],
      ["Reason", value("reason", row)],
      ["Property suite", suite ? `${agrees}: ${suite}, ${typed.property_passed[row]} of ${typed.property_total[row]}` : "not asked about rollouts"],
      ["Reward", value("reward", row) === null ? "" : String(value("reward", row))],
      ["Credited reward", value("credited_reward", row) === value("reward", row) ? "" : String(value("credited_reward", row))],
      ["Reference", value("task", row)[2].trim()],
    ].filter(([, text]) => text !== "");
  }

  function body(row) {
    const [, prompt] = value("task", row);
    const program = make("pre", { className: "wrap", tabIndex: 0, textContent: prompt + value("completion", row) });
    program.setAttribute("aria-label", "Prompt and completion");
    const list = make("dl", {}, ...facts(row).flatMap(([name, text]) => [make("dt", { textContent: name }), make("dd", { textContent: text })]));
    return make("div", { className: "body" }, program, list, ...nextBytes(row));
  }

  // The five likeliest next bytes before and after RL, of a completion that the run's trace knows.
  function nextBytes(row) {
    const phase = sources[typed.source[row]], run = runsOf(row)[0];
    const traced = value("mode", row) === "greedy" ? run?.next[value("task", row)[0]]?.[phase] : undefined;
    if (!traced) return [];
    const label = `Next bytes: pick a byte, or step with the arrow keys (run ${run.study}, ${run.arm}, seed ${run.seed})`;
    const bars = make("div", { className: "bars" });
    const buttons = traced.given.map((token) => make("button", { type: "button", textContent: spelled(token), tabIndex: -1 }));
    const pick = (place) => {
      buttons.forEach((button, index) => {
        button.setAttribute("aria-pressed", String(index === place));
        button.tabIndex = index === place ? 0 : -1;
      });
      bars.replaceChildren(barList("Before RL", traced, "before", place), barList("After RL", traced, "after", place));
    };
    const strip = make("div", { className: "bytes" }, ...buttons);
    strip.setAttribute("role", "group");
    strip.setAttribute("aria-label", label);
    buttons.forEach((button, place) => button.addEventListener("click", () => pick(place)));
    strip.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (!move) return;
      event.preventDefault();
      const place = Math.min(Math.max(buttons.indexOf(document.activeElement) + move, 0), buttons.length - 1);
      pick(place);
      buttons[place].focus();
    });
    pick(mostChanged(traced));
    return [make("p", { className: "soft", textContent: label }), strip, bars];
  }

  // The byte whose probability RL has moved most: a good one to begin with.
  function mostChanged(traced) {
    const moved = traced.given.map((_, place) => Math.abs(traced.before.p[place] - traced.after.p[place]));
    return moved.indexOf(Math.max(...moved));
  }

  function spelled(token) {
    if (token === EOS) return "end";
    const byte = token - CONTROL_IDS;
    if (byte === 10) return "⏎";
    if (byte === 32) return "␣";
    return byte > 32 && byte < 127 ? String.fromCharCode(byte) : `\\x${byte.toString(16).padStart(2, "0")}`;
  }

  function barList(title, traced, policy, place) {
    const { p, tokens, q } = traced[policy], given = traced.given[place];
    const bars = tokens.slice(place * LIKELIEST, (place + 1) * LIKELIEST).map((token, rank) => {
      const share = q[place * LIKELIEST + rank] / data.scale;
      const bar = make("i");
      bar.style.width = `${100 * share}%`;
      const item = make("li", {}, make("code", { textContent: spelled(token) }), make("div", {}, bar), make("span", { textContent: percent(share) }));
      item.classList.toggle("given", token === given);
      return item;
    });
    const list = make("ol", {}, ...bars);
    list.dataset.policy = policy;
    return make("div", {}, make("h4", { textContent: `${title}: ${spelled(given)} at ${percent(p[place] / data.scale)}` }), list);
  }
  const percent = (share) => `${(100 * share).toFixed(2)} %`;

  function turn(by) {
    first += by;
    draw();
    at("list").focus();
    at("list").scrollIntoView({ block: "nearest" });
  }

  function begin() {
    options(at("family"), values.family.map((name) => [name, name]), "all");
    offerRuns();
    if (runs.length) {
      at("study").value = runs[0].study;
      offerRuns();
      at("arm").value = runs[0].arm;
      offerRuns();
      at("seed").value = String(runs[0].seed);
    }
    changed();
  }

  function changed() {
    offerRuns();
    offerTasks();
    filter();
  }

  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("filters").addEventListener("change", changed);
  at("search").addEventListener("input", filter);
  at("filters").addEventListener("reset", () => setTimeout(begin));
  at("previous").addEventListener("click", () => turn(-ROWS_A_PAGE));
  at("next").addEventListener("click", () => turn(ROWS_A_PAGE));
  begin();
})();
