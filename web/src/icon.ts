// The tab's title and icon say how many things wait for a person.

import { effect } from "@preact/signals";
import { needs } from "./state";
import { place } from "./router";

const MARK =
  '<rect width="32" height="32" rx="7" fill="#1d5fd1"/><path d="M22 11.5A7.5 7.5 0 1 0 23.5 16H17" ' +
  'fill="none" stroke="#fff" stroke-width="3.4" stroke-linecap="round" stroke-linejoin="round"/>';

export function icon(count: number): string {
  if (!count) return "/favicon.svg";
  const text = count > 99 ? "99" : String(count);
  const width = 12 + 6 * text.length;
  const badge =
    `<rect x="${32 - width}" y="15" width="${width}" height="17" rx="8.5" fill="#b4430c"/>` +
    `<text x="${32 - width / 2}" y="28" font-family="sans-serif" font-weight="700" font-size="13" ` +
    `fill="#fff" text-anchor="middle">${text}</text>`;
  return `data:image/svg+xml,${encodeURIComponent(
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${MARK}${badge}</svg>`,
  )}`;
}

export function beginIcon(): void {
  let shown = "";
  effect(() => {
    const { project, subject } = place.value;
    const about = [subject, project].filter(Boolean).join(" · ");
    document.title = `${needs.value ? `(${needs.value}) ` : ""}${about ? `${about} · ` : ""}genlock`;
    const href = icon(needs.value);
    if (href === shown) return;
    shown = href;
    document.querySelector<HTMLLinkElement>("link[rel=icon]")!.href = href;
  });
}
