"use strict";
(() => {
  const plans = JSON.parse(document.getElementById("plans").textContent);
  const panels = [...document.querySelectorAll(".panel")];
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const beside = document.getElementById("beside");
  const details = document.getElementById("details");
  const empty = details.innerHTML;

  // ---- pan and zoom -------------------------------------------------------------------------
  const views = panels.map((panel) => {
    const view = panel.querySelector(".view");
    const figure = view.querySelector("svg");
    const size = { width: figure.viewBox.baseVal.width, height: figure.viewBox.baseVal.height };
    const at = { x: 0, y: 0, scale: 1 };
    let fitted = false;
    const draw = () => {
      figure.style.transform = `translate(${at.x}px, ${at.y}px) scale(${at.scale})`;
    };
    const fit = () => {
      const room = view.getBoundingClientRect();
      if (!room.width || !room.height) return;
      const whole = Math.min(room.width / size.width, room.height / size.height);
      // A long drawing stays readable: if it does not fit, its beginning is shown.
      at.scale = Math.min(1, Math.max(whole, Math.min(0.85, room.width / size.width)));
      at.x = (room.width - size.width * at.scale) / 2;
      at.y = Math.max(0, (room.height - size.height * at.scale) / 2);
      fitted = true;
      draw();
    };
    const zoom = (factor, x, y) => {
      const scale = Math.min(4, Math.max(0.05, at.scale * factor));
      at.x = x - ((x - at.x) * scale) / at.scale;
      at.y = y - ((y - at.y) * scale) / at.scale;
      at.scale = scale;
      draw();
    };
    const middle = (factor) => {
      const room = view.getBoundingClientRect();
      zoom(factor, room.width / 2, room.height / 2);
    };
    const move = (x, y) => {
      at.x += x;
      at.y += y;
      draw();
    };
    view.addEventListener("wheel", (event) => {
      event.preventDefault();
      const room = view.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) {
        zoom(Math.exp(-event.deltaY / 200), event.clientX - room.left, event.clientY - room.top);
      } else {
        move(-event.deltaX, -event.deltaY);
      }
    }, { passive: false });
    let held = null;
    view.addEventListener("pointerdown", (event) => {
      if (event.button === 0) held = { id: event.pointerId, x: event.clientX, y: event.clientY, moved: false };
    });
    view.addEventListener("pointermove", (event) => {
      if (!held || held.id !== event.pointerId) return;
      const [x, y] = [event.clientX - held.x, event.clientY - held.y];
      if (!held.moved && Math.hypot(x, y) < 4) return;
      if (!held.moved) view.setPointerCapture(event.pointerId);
      held = { ...held, x: event.clientX, y: event.clientY, moved: true };
      view.classList.add("moving");
      move(x, y);
    });
    const release = () => {
      held = null;
      view.classList.remove("moving");
    };
    view.addEventListener("pointerup", release);
    view.addEventListener("pointercancel", release);
    view.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (steps[event.key]) move(...steps[event.key]);
      else if (event.key === "+" || event.key === "=") middle(1.25);
      else if (event.key === "-") middle(0.8);
      else if (event.key === "0") fit();
      else return;
      event.preventDefault();
    });
    // Scroll the node with the keyboard focus into view.
    figure.addEventListener("focusin", (event) => {
      const node = event.target.closest("[data-node]");
      if (!node || !node.matches(":focus-visible")) return;
      const [room, place] = [view.getBoundingClientRect(), node.getBoundingClientRect()];
      const x = Math.max(0, room.left + 8 - place.left) - Math.max(0, place.right - room.right + 8);
      const y = Math.max(0, room.top + 8 - place.top) - Math.max(0, place.bottom - room.bottom + 8);
      if (x || y) move(x, y);
    });
    view.addEventListener("scroll", () => view.scrollTo(0, 0));
    return { fit, middle, fitOnce: () => fitted || fit() };
  });

  // ---- passes -------------------------------------------------------------------------------
  let chosen = Math.max(0, tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true"));
  const show = (index) => {
    chosen = index;
    const all = beside.getAttribute("aria-pressed") === "true";
    tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === index));
      tab.tabIndex = i === index ? 0 : -1;
    });
    panels.forEach((panel, i) => { panel.hidden = !all && i !== index; });
    views.forEach((view, i) => { if (!panels[i].hidden) view.fitOnce(); });
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => show(i));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      show((i + step + tabs.length) % tabs.length);
      tabs[chosen].focus();
    });
  });
  beside.addEventListener("click", () => {
    beside.setAttribute("aria-pressed", String(beside.getAttribute("aria-pressed") !== "true"));
    show(chosen);
    views.forEach((view, i) => { if (!panels[i].hidden) view.fit(); });
  });
  const shown = () => views.filter((_, i) => !panels[i].hidden);
  document.getElementById("closer").addEventListener("click", () => shown().forEach((view) => view.middle(1.25)));
  document.getElementById("farther").addEventListener("click", () => shown().forEach((view) => view.middle(0.8)));
  document.getElementById("whole").addEventListener("click", () => shown().forEach((view) => view.fit()));

  // ---- details ------------------------------------------------------------------------------
  const add = (parent, tag, text) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const rows = (pairs) => {
    const body = add(add(details, "table"), "tbody");
    for (const [name, value] of pairs) {
      const row = add(body, "tr");
      add(row, "th", name).scope = "row";
      add(row, "td", value);
    }
  };
  const count = (n) => n.toLocaleString("en-US");
  const describe = (plan, node) => {
    details.replaceChildren();
    add(details, "h2", node.id);
    add(details, "p", node.plugin ? `${node.kind} · ${node.plugin}` : node.kind);
    if (node.workers > 1) add(details, "p", `${node.workers} workers, output in input order`);
    for (const note of node.notes ?? []) add(details, "p", note);
    if (node.condition) {
      add(details, "h3", "condition");
      add(details, "pre", node.condition.text);
      const how = node.condition.native ? "runs natively" : "runs as a template";
      add(details, "p", node.condition.as_before ? "takes over the verdicts of the step before" : how);
    }
    if (node.measured) {
      const m = node.measured;
      add(details, "h3", "measured");
      rows([
        ["records in", count(m.rows_in)], ["applied to", count(m.selected)], ["records out", count(m.rows_out)],
        ["failed", count(m.failed)],
        ["selectivity", m.selectivity === null ? "–" : `${(m.selectivity * 100).toFixed(1)} %`],
        ["time", `${(m.busy_ns / 1e6).toFixed(3)} ms`], ["share", `${(m.share * 100).toFixed(1)} %`],
      ]);
    }
    const settings = Object.entries(node.settings ?? {});
    add(details, "h3", settings.length ? "settings" : "no settings");
    if (settings.length) rows(settings);
    const ways = (title, of, end) => {
      const lines = plan.edges.filter((edge) => edge[of] === node.index);
      if (!lines.length) return;
      add(details, "h3", title);
      for (const line of lines) {
        const port = line.port === "out" ? "" : ` (${line.port})`;
        add(details, "p", plan.nodes[line[end]].id + port);
        if (line.shape) add(details, "pre", line.shape);
      }
    };
    ways("from", "to", "from");
    ways("to", "from", "to");
  };
  const clear = () => {
    document.querySelectorAll(".chosen, .near").forEach((e) => e.classList.remove("chosen", "near"));
  };
  const choose = (panel, element) => {
    clear();
    const index = Number(element.dataset.node);
    element.classList.add("chosen");
    panel.querySelectorAll(`.edge[data-from="${index}"], .edge[data-to="${index}"]`).forEach((e) => e.classList.add("near"));
    const plan = plans[panels.indexOf(panel)];
    describe(plan, plan.nodes[index]);
  };
  panels.forEach((panel) => {
    panel.addEventListener("click", (event) => {
      const element = event.target.closest("[data-node]");
      if (element) choose(panel, element);
    });
    panel.addEventListener("keydown", (event) => {
      const element = event.target.closest("[data-node]");
      if (!element || (event.key !== "Enter" && event.key !== " ")) return;
      event.preventDefault();
      choose(panel, element);
    });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    clear();
    details.innerHTML = empty;
  });

  show(chosen);
})();
