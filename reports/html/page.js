"use strict";
(() => {
  const said = document.querySelector(".said");

  // Older browsers and pages without a secure origin have no clipboard to write to.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) throw new Error("refused");
    }
  };

  // A table goes into a spreadsheet.
  const textOf = (element) => element.tagName === "TABLE"
    ? [...element.rows].map((row) => [...row.cells].map((cell) => cell.textContent).join("\t")).join("\n")
    : element.textContent;

  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copy);
      try {
        await copy(textOf(code));
        said.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        said.textContent = "Selected, copy it with the keyboard";
      }
      button.focus();
      setTimeout(() => { said.textContent = ""; }, 2500);
    });
  }

  // By numbers where there are any; what has none comes last.
  const sort = (table, column, descending) => {
    const key = (row) => row.cells[column].textContent.trim();
    const [rows, body] = [[...table.tBodies[0].rows], table.tBodies[0]];
    const numeric = rows.every((row) => !key(row) || !isNaN(key(row)));
    const compare = numeric ? (a, b) => a - b : (a, b) => a.localeCompare(b, undefined, { numeric: true });
    const filled = rows.filter((row) => key(row)).sort((a, b) => compare(key(a), key(b)));
    if (descending) filled.reverse();
    body.append(...filled, ...rows.filter((row) => !key(row)));
  };

  for (const table of document.querySelectorAll("table#numbers")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const descending = head.ariaSort === "ascending";
        for (const other of heads) other.ariaSort = null;
        head.ariaSort = descending ? "descending" : "ascending";
        sort(table, column, descending);
      });
    });
  }

  // On paper nothing can be opened.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
  });
})();
