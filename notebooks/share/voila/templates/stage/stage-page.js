// The page as a stage: what is being done until the first panel is there, panels as screens, keys, and notes.
(() => {
  const WIDTH = 1280, HEIGHT = 720;
  const $ = (selector, within = document) => within.querySelector(selector);
  const screens = [];
  let now = 0, notesWindow = null;

  function fit() {
    const scale = Math.min(innerWidth / WIDTH, innerHeight / HEIGHT);
    const left = (innerWidth - scale * WIDTH) / 2, top = (innerHeight - scale * HEIGHT) / 2;
    for (const id of ["rendered_cells", "curtain", "foot", "notes"]) {
      const part = document.getElementById(id);
      if (part) part.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
    }
  }

  function doing(text, share) {
    if (!$("#doing")) return;
    $("#doing").textContent = text;
    $("#bar div").style.width = `${100 * share}%`;
  }

  // A cell that begins a panel is its question and its note; the cells behind it are the panel.
  function makeScreens() {
    let screen = null;
    for (const cell of [...document.querySelectorAll("#rendered_cells [cell-index]")]) {
      const begins = $(".celltag_panel", cell);
      if (begins) {
        screen = document.createElement("section");
        screen.className = "screen";
        screen.note = [...begins.querySelectorAll(":scope > *:not(h2)")].map((part) => part.textContent).join("\n");
        cell.parentNode.append(screen);
        screens.push(screen);
        $(".anchor-link", begins)?.remove();
      }
      if (screen) screen.append(cell);
      else cell.style.display = "none";
    }
    document.body.insertAdjacentHTML("beforeend", '<div id="foot"><span></span><span></span></div><div id="notes"><div></div></div>');
    go(Number(location.hash.slice(1)) - 1 || 0);
    fit();
  }

  function go(number) {
    now = Math.min(Math.max(number, 0), screens.length - 1);
    screens.forEach((screen, place) => screen.classList.toggle("now", place === now));
    history.replaceState(null, "", `#${now + 1}`);
    const [where, keys] = document.querySelectorAll("#foot span");
    where.innerHTML = `<b>${now + 1}</b> of ${screens.length}`;
    keys.textContent = "← → panels · Space: next step · N: notes · W: notes window · F: full screen · Esc: leave a control";
    tellNote();
    document.activeElement?.blur?.();
  }

  function tellNote() {
    const note = screens[now].note;
    $("#notes div").textContent = note;
    if (notesWindow && !notesWindow.closed) {
      notesWindow.document.title = "Notes";
      notesWindow.document.body.innerText = `${now + 1}: ${$("h2", screens[now]).textContent}\n\n${note}`;
    }
  }

  function openNotes() {
    notesWindow = window.open("", "notes", "width=720,height=480");
    if (!notesWindow) return;
    notesWindow.document.body.style.cssText = "font: 24px/1.4 sans-serif; margin: 24px; white-space: pre-wrap";
    tellNote();
  }

  // In a control, keys belong to the control.
  const CONTROLS = "input, select, textarea, [contenteditable=true], [role=slider], .noUi-handle";
  addEventListener("keydown", (event) => {
    if (!screens.length || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") return document.activeElement?.blur();
    const focus = event.target.closest?.(CONTROLS), pressed = event.target.closest?.("button");
    if (focus) return;
    const keys = {
      ArrowRight: () => go(now + 1),
      PageDown: () => go(now + 1),
      ArrowLeft: () => go(now - 1),
      PageUp: () => go(now - 1),
      Home: () => go(0),
      End: () => go(screens.length - 1),
      n: () => $("#notes").classList.toggle("open"),
      w: openNotes,
      f: () => (document.fullscreenElement ? document.exitFullscreen() : document.documentElement.requestFullscreen()),
      " ": pressed ? null : () => $(".stage-space:not(:disabled)", screens[now])?.click(),
    };
    const number = /^[1-9]$/.test(event.key) && Number(event.key) <= screens.length ? Number(event.key) : 0;
    const act = number ? () => go(number - 1) : keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }, true);  // before the controls, which keep to themselves what is typed in them
  // After the mouse has moved a slider, a presenter's clicker turns pages again.
  addEventListener("pointerup", (event) => {
    if (event.target.closest?.(".slider, .noUi-target")) document.activeElement?.blur();
  });
  addEventListener("resize", fit);
  fit();

  window.voila_process = (cell, count) => doing(`Starting the kernel, and putting up panels: cell ${cell} of ${count} …`, 0.1 + (0.25 * cell) / count);
  const shown = window.voila_finish;
  window.voila_finish = () => {
    if (screens.length) return shown();  // Voilà asks again when its theme has come
    makeScreens();
    doing("Connecting the page with Python …", 0.4);
    shown();
    const begun = performance.now();
    const timer = setInterval(() => {
      // A cell that failed has put up no panel: what Voilà says of it must be seen.
      if (!$(".course-panel", screens[0]) && performance.now() - begun < 20000) return;
      clearInterval(timer);
      $("#curtain")?.remove();
      $("#foot").style.visibility = "visible";
    }, 50);
  };
})();
