"use strict";
// The training animation: a slider over the checkpoints of one run. Texts were written by models, so they only ever become text nodes.
(() => {
  const data = JSON.parse(document.getElementById("training-frames").textContent);
  const at = (name) => document.getElementById("frames-" + name);
  const column = Object.fromEntries(data.columns.map((name, place) => [name, place]));
  const state = { family: null, timer: null };

  const options = (select, labels) =>
    select.replaceChildren(...labels.map((label, value) => Object.assign(document.createElement("option"), { value, textContent: label })));
  const run = () => data.runs[Number(at("run").value)];
  const family = () => run().families[Number(at("family").value)];

  function stage(checkpoint) {
    const number = Number(checkpoint.split("-").pop());
    if (checkpoint.startsWith("groups")) return `after ${number} groups of RL`;
    return number === 0 ? "random weights" : `pretraining, step ${number}`;
  }

  function show() {
    const { prompt, frames } = family();
    const frame = frames[Number(at("step").value)];
    const where = stage(frame[column.checkpoint]);
    at("where").textContent = `${Number(at("step").value) + 1} of ${frames.length}: ${where}`;
    at("step").setAttribute("aria-valuetext", where);
    at("prompt").textContent = prompt;
    at("answer").textContent = frame[column.completion];
    at("verdict").textContent = frame[column.verdict];
    at("verdict").dataset.status = frame[column.verdict];
    at("reason").textContent = `${frame[column.cases_passed]} of ${frame[column.cases_total]} cases. ${frame[column.reason]}`;
    [...at("strip").children].forEach((item, place) => item.setAttribute("aria-current", place === Number(at("step").value) ? "step" : "false"));
  }

  function pickFamily() {
    const { family: name, frames } = family();
    state.family = name;
    at("step").max = frames.length - 1;
    at("step").value = frames.length - 1;
    at("strip").replaceChildren(
      ...frames.map((frame) => {
        const item = Object.assign(document.createElement("li"), { title: stage(frame[column.checkpoint]), className: "mark" });
        item.dataset.status = frame[column.verdict];
        item.textContent = frame[column.checkpoint];
        return item;
      }),
    );
    show();
  }

  function pickRun() {
    const names = run().families.map((one) => one.family);
    options(at("family"), names);
    at("family").value = Math.max(0, names.indexOf(state.family));
    pickFamily();
  }

  function pause() {
    clearInterval(state.timer);
    state.timer = null;
    at("play").textContent = "Play";
    at("play").setAttribute("aria-pressed", "false");
  }

  function step() {
    if (Number(at("step").value) >= Number(at("step").max)) return pause();
    at("step").value = Number(at("step").value) + 1;
    show();
  }

  function play() {
    if (state.timer) return pause();
    if (at("step").value === at("step").max) at("step").value = 0;
    show();
    state.timer = setInterval(step, 900);
    at("play").textContent = "Pause";
    at("play").setAttribute("aria-pressed", "true");
  }

  if (!data.runs.length) {
    document.getElementById("training").hidden = true;
    return;
  }
  options(at("run"), data.runs.map((one) => `${one.study}, ${one.arm}, seed ${one.seed}`));
  const trained = data.runs[0].families.reduce((best, one) => (one.frames.length > best.frames.length ? one : best));
  state.family = trained.family;
  at("run").addEventListener("change", pickRun);
  at("family").addEventListener("change", pickFamily);
  at("step").addEventListener("input", () => { pause(); show(); });
  at("play").addEventListener("click", play);
  pickRun();
})();
