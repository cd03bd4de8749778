import { withUnit } from '../components/text.ts';

/** Seconds of each unit, the longest first. */
const TIME_UNITS = [
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'min'],
] as const;

/** `42 %`; one decimal below 10 %. */
export function percent(share: number): string {
  const value = 100 * share;
  return withUnit(value.toFixed(value !== 0 && Math.abs(value) < 10 ? 1 : 0).replace('-', '−'), '%');
}

/** A short form of a number: `0.0123`, `4.2`, `12.3k`, `1.2M`, `1.0e31`; `–` for none. */
export function short(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (value < 0) return `−${short(size)}`;
  if (size >= 1e12) return value.toExponential(1).replace('+', '');
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (size >= 0.0001) return String(Number(value.toPrecision(3)));
  return size === 0 ? '0' : value.toExponential(1);
}

/** `+0.50` or `−1.20`. */
export function signed(value: number): string {
  const size = Math.abs(value).toFixed(2);
  return Number(size) === 0 ? size : `${value > 0 ? '+' : '−'}${size}`;
}

/** `1 h 02 min`, `3 min 20 s` or `45 s`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [days, hours, minutes] = [whole / 86_400, (whole % 86_400) / 3600, (whole % 3600) / 60].map(
    Math.floor,
  );
  const twoDigits = (value: number) => String(value).padStart(2, '0');
  if (days > 0) return `${withUnit(days, 'd')} ${withUnit(hours, 'h')}`;
  if (hours > 0) return `${withUnit(hours, 'h')} ${withUnit(twoDigits(minutes), 'min')}`;
  return minutes > 0
    ? `${withUnit(minutes, 'min')} ${withUnit(twoDigits(whole % 60), 's')}`
    : withUnit(whole, 's');
}

/** `about 40 s left`, `about 10 min left` or `about 2.5 h left`: as fine as an estimate is. */
export function timeLeft(seconds: number): string {
  const [size, unit] = TIME_UNITS.find(([size]) => seconds >= 1.5 * size) ?? ([1, 's'] as const);
  const count = Math.max(0, seconds) / size;
  const rounded =
    unit === 's'
      ? 10 * Math.ceil(count / 10)
      : count < 10 && unit !== 'min'
        ? Math.round(2 * count) / 2
        : Math.round(count);
  return `about ${withUnit(rounded, unit)} left`;
}

/**
 * Age of a time, as text.
 * @param ms since the epoch
 */
export function ago(ms: number, now: number): string {
  return `${duration((now - ms) / 1000)} ago`;
}

/** The level of an episode: its environment and seed, if it has one. */
export function levelOf({ tag, seed }: { readonly tag: string; readonly seed: number | null }): string {
  return seed === null ? tag : `${tag}, seed ${seed}`;
}
