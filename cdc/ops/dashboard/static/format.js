// Formats numbers for people, with a dash for an unknown number.

export const DASH = "–";

const WHOLE = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const ONE = new Intl.NumberFormat("en", {maximumFractionDigits: 1, minimumFractionDigits: 1});
const CLOCK = new Intl.DateTimeFormat("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit"});
const DAY = new Intl.DateTimeFormat("en-GB", {dateStyle: "medium", timeStyle: "medium"});

const known = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  return known(value) ? WHOLE.format(value) : DASH;
}

export function rate(value) {
  if (!known(value)) return DASH;
  return value > 0 && value < 10 ? ONE.format(value) : WHOLE.format(value);
}

export function bytes(value) {
  if (!known(value)) return DASH;
  let amount = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(amount) < 1024) return `${unit === "B" ? WHOLE.format(amount) : ONE.format(amount)} ${unit}`;
    amount /= 1024;
  }
  return `${ONE.format(amount)} TiB`;
}

export function seconds(value) {
  if (!known(value)) return DASH;
  if (value < 100) return `${ONE.format(value)} s`;
  return lasting(value * 1000);
}

export function lasting(milliseconds) {
  if (!known(milliseconds)) return DASH;
  if (milliseconds > 3e12) return "for ever";
  for (const [unit, size] of [["days", 864e5], ["h", 36e5], ["min", 6e4], ["s", 1e3]]) {
    if (milliseconds >= 1.5 * size) return `${ONE.format(milliseconds / size).replace(/\.0$/, "")} ${unit}`;
  }
  return `${WHOLE.format(milliseconds)} ms`;
}

export function ago(at, now) {
  const elapsed = Math.max(now - at, 0);
  return elapsed < 1.5 ? "just now" : `${elapsed < 90 ? `${Math.round(elapsed)} s` : lasting(elapsed * 1000)} ago`;
}

export const clock = (at) => CLOCK.format(new Date(at * 1000));
export const moment = (at) => DAY.format(new Date(at * 1000));
export const plural = (number, noun) => `${WHOLE.format(number)} ${noun}${number === 1 ? "" : "s"}`;
