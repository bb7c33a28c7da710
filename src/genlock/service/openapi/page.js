addEventListener("click", (event) => {
  const button = event.target.closest(".curl button");
  if (button) navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent).then(() => { button.textContent = "copied"; });
});
const open = () => { const found = document.getElementById(location.hash.slice(1)); if (found && found.tagName === "DETAILS") found.open = true; };
addEventListener("hashchange", open);
open();
