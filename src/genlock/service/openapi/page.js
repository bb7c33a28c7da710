addEventListener("click", (event) => {
  const button = event.target.closest(".curl button");
  if (button) navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent).then(() => { button.textContent = "copied"; });
});
// A line that is pasted should ask the service that shows it.
for (const code of document.querySelectorAll(".curl code")) code.firstChild.data = code.firstChild.data.replace("http://localhost:8420", location.origin);
const open = () => { const found = document.getElementById(location.hash.slice(1)); if (found && found.tagName === "DETAILS") found.open = true; };
addEventListener("hashchange", open);
open();
