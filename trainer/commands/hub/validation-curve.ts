import type { ValidationPoint } from '../../../shared/run-folder/run-files.ts';

const WIDTH = 640;
const HEIGHT = 260;
const LEFT = 52;
const RIGHT = WIDTH - 16;
const TOP = 16;
const BOTTOM = HEIGHT - 40;
/** Lines of the share, from 0 to 1. */
const SHARES = [0, 0.25, 0.5, 0.75, 1];

const STYLE = `
:root { --paper: #ffffff; --line: #d0d7de; --ink: #1f2328; --curve: #0969da; }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --line: #3d444d; --ink: #f0f6fc; --curve: #4493f8; } }
text { font: 13px ui-sans-serif, Arial, sans-serif; fill: var(--ink); }
.paper { fill: var(--paper); } .line { stroke: var(--line); } .interval { fill: var(--curve); opacity: 0.2; }
.curve { fill: none; stroke: var(--curve); stroke-width: 2; } .point { fill: var(--curve); }`;

/**
 * Success of each validation by iteration as SVG, with its 95 % interval where that is known; undefined where there are fewer
 * than two.
 */
export function validationCurve(points: readonly ValidationPoint[]): string | undefined {
  if (points.length < 2) return undefined;
  const last = Math.max(1, ...points.map(({ step }) => step));
  const x = (step: number) => rounded(LEFT + ((RIGHT - LEFT) * step) / last);
  const y = (share: number) => rounded(BOTTOM - (BOTTOM - TOP) * share);
  const path = (of: readonly (readonly [number, number])[]) =>
    of.map(([step, share]) => `${x(step)},${y(share)}`).join(' ');
  const known = points.filter(({ low, high }) => low !== undefined && high !== undefined);
  const upper = known.map(({ step, high }) => [step, high!] as const);
  const lower = known.map(({ step, low }) => [step, low!] as const).reverse();
  const curve = points.map(({ step, success }) => [step, success] as const);
  const steps = [...new Set([points[0].step, Math.round(last / 2), last])];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img">
<title>Success of validation by iteration</title>
<style>${STYLE}
</style>
<rect class="paper" width="${WIDTH}" height="${HEIGHT}"/>
${SHARES.map(
  share =>
    `<line class="line" x1="${LEFT}" x2="${RIGHT}" y1="${y(share)}" y2="${y(share)}"/><text x="${LEFT - 8}" y="${y(share) + 4}" text-anchor="end">${100 * share} %</text>`,
).join('\n')}
${steps.map(step => `<text x="${x(step)}" y="${BOTTOM + 18}" text-anchor="middle">${step}</text>`).join('\n')}
<text x="${(LEFT + RIGHT) / 2}" y="${HEIGHT - 6}" text-anchor="middle">iteration</text>
${known.length < 2 ? '' : `<polygon class="interval" points="${path([...upper, ...lower])}"/>\n`}<polyline class="curve" points="${path(curve)}"/>
${points.map(({ step, success }) => `<circle class="point" cx="${x(step)}" cy="${y(success)}" r="3"/>`).join('\n')}
</svg>
`;
}

/** A coordinate with at most one decimal. */
function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
