/** `42 %`; one place below 10 %. */
export function percent(share: number): string {
  const value = 100 * share;
  return `${value !== 0 && Math.abs(value) < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** A number in few characters: `0.0123`, `4.2`, `12.3k`, `1.2M`. */
export function short(value: number): string {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)}G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${(value / 1e3).toFixed(1)}k`;
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (size >= 0.01) return String(Number(value.toPrecision(3)));
  return size === 0 ? '0' : value.toExponential(1);
}

/** `1 h 02 min`, `3 min 20 s` or `45 s`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole >= 86_400) return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
  if (whole >= 3600) {
    return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')} min`;
  }
  return whole >= 60
    ? `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`
    : `${whole} s`;
}

/** How long ago a time was. @param ms since the epoch */
export function ago(ms: number, now: number): string {
  return `${duration((now - ms) / 1000)} ago`;
}

/** `1 run`, `2 runs`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}
