import { expect, test } from "vitest";
import { ago, countdown, diff, local, shell, size, span } from "../src/format";

test("a length of time has at most two units", () => {
  expect([45, 60, 270, 7500, 273600].map(span)).toEqual(["45s", "1m", "4m 30s", "2h 5m", "3d 4h"]);
});

test("a countdown never shows less than is left, and ends at zero", () => {
  expect([220.2, 38, 0.4, 0, -5, 3720].map(countdown)).toEqual([
    "3:41",
    "0:38",
    "0:01",
    "0:00",
    "0:00",
    "1:02:00",
  ]);
});

test("a time is told by its distance from the service's time", () => {
  const now = Date.parse("2026-01-04T06:05:00Z");
  expect(ago("2026-01-04T06:04:48Z", now)).toBe("12s ago");
  expect(ago("2026-01-04T06:09:30Z", now)).toBe("in 4m 30s");
});

test("bytes are told in a unit that leaves a short number", () => {
  expect([999, 1500, 15_300, 2_000_000].map(size)).toEqual([
    "999 bytes",
    "1.5 KB",
    "15 KB",
    "2.0 MB",
  ]);
});

test("a command is quoted as a shell needs it", () => {
  expect(shell(["genlock", "hold", "A-001", "it's late"])).toBe(
    "genlock hold A-001 'it'\\''s late'",
  );
});

test("two texts are compared line by line", () => {
  expect(diff("a\nb\nc", "a\nx\nc")).toEqual([
    { left: "a", right: "a" },
    { left: "b", right: "x" },
    { left: "c", right: "c" },
  ]);
});

test("a line that was only added stands alone", () => {
  expect(diff("a\nc", "a\nb\nc")).toEqual([
    { left: "a", right: "a" },
    { left: null, right: "b" },
    { left: "c", right: "c" },
  ]);
});

test("a time within a text of the service is shown by the local clock", () => {
  const told = local(
    "lease until 2026-01-04T06:05:00Z, or later",
    Date.parse("2026-01-04T06:00:00Z"),
  );
  expect(told).toMatch(/^lease until \d\d:\d5:00, or later$/);
});
