"use strict";
// Asks for the moving part every two seconds; a page that nobody looks at asks less often.
(() => {
  const live = document.getElementById("live");
  // Only what has changed is replaced: what one has just selected stays so.
  function show(html) {
    const next = document.createElement("main");
    next.innerHTML = html;
    [...next.children].forEach((part, at) => {
      const old = live.children[at];
      if (!old) live.append(part);
      else if (old.outerHTML !== part.outerHTML) old.replaceWith(part);
    });
  }
  async function look() {
    try {
      const answer = await fetch("?fragment=1", { cache: "no-store" });
      if (answer.status === 401) return location.reload(); // the sign-in is over: the page asks for a key
      if (!answer.ok) throw new Error(String(answer.status));
      show(await answer.text());
      document.body.classList.remove("away");
    } catch {
      document.body.classList.add("away");
    }
    setTimeout(look, document.hidden ? 10000 : 2000);
  }
  setTimeout(look, 2000);
})();
