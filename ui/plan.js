// The compiled plan of a pipeline, as `pipelines plan` prints it.

import { getText, of, text } from "./api.js";
import { copy, h, say, uniqueId } from "./dom.js";

const PASSES = [
  ["fused", "the stages that run"],
  ["rewritten", "after all rewrites"],
  ["lowered", "the pipeline file"],
];

export class PlanText {
  /** @param {string} pipeline */
  constructor(pipeline) {
    this.pipeline = pipeline;
    const id = uniqueId();
    this.pass = h("select", { id, change: () => this.load() }, ...PASSES.map(([pass, label]) => h("option", { value: pass }, `${pass}: ${label}`)));
    this.plan = h("pre", { class: "plan", tabindex: 0, role: "group", "aria-label": "Plan as text" });
    this.element = h("section", { class: "page", "aria-label": "Plan" }, h("div", { class: "bar" }, h("label", { for: id }, "Pass"), this.pass,
      h("button", { type: "button", class: "small", click: (event) => copy(event.currentTarget, this.plan.textContent ?? "") }, "Copy")), this.plan);
  }

  async load() {
    const pass = this.pass.value;
    try {
      const plan = await getText(of(this.pipeline, "/graph", { pass, format: "text" }));
      if (pass === this.pass.value) say(this.plan, plan);
    } catch (error) {
      say(this.plan, text(error));
    }
  }
}
