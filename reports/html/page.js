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

  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copy);
      try {
        await copy(code.textContent);
        said.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        said.textContent = "Selected, copy it with the keyboard";
      }
      button.focus();
      setTimeout(() => { said.textContent = ""; }, 2500);
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
