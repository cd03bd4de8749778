import { figure, label, rounded, SERIES_COLORS } from './svg.ts';

const WIDTH = 720;
const HEIGHT = 360;
const LEFT = 52;
const RIGHT = 190;
const TOP = 44;
const BOTTOM = 44;
/** If all curves lie above the first, the axis begins closer to them, and at the second at most. */
const HIGH = [50, 80] as const;
const LABEL_GAP = 15;
/** Left edge of a name next to a plot, and the width of its letters. */
const NAME_LEFT = 30;
const LETTER = 6.2;
/** The horizontal axis has as many labels and one at 0. */
const MAX_STEPS = 8;

export interface PlotCurve {
  readonly name: string;
  /** [iteration or another unit of progress, success in %]. */
  readonly points: readonly (readonly [number, number])[];
}

/**
 * Success over the course of training, one line for each run.
 * @param unit of the progress
 */
export function curvePlot(title: string, curves: readonly PlotCurve[], unit = 'iteration'): string {
  const last = Math.max(1, ...curves.flatMap(({ points }) => points.map(([x]) => x)));
  const right = WIDTH - Math.max(RIGHT, ...curves.map(({ name }) => NAME_LEFT + LETTER * name.length));
  const sx = (x: number): number => LEFT + (x / last) * (right - LEFT);
  const step = niceStep(last);
  const lowest = Math.min(...curves.flatMap(({ points }) => points.map(([, y]) => y)));
  const low = lowest < HIGH[0] ? 0 : Math.min(HIGH[1], 10 * Math.floor(lowest / 10));
  const sy = (percent: number): number => TOP + ((100 - percent) / (100 - low)) * (HEIGHT - TOP - BOTTOM);
  const parts = percentAxis(low, right, sy);
  for (let x = 0; x <= last; x += step)
    parts.push(label(sx(x), HEIGHT - BOTTOM + 18, String(x), { kind: 'soft small', anchor: 'middle' }));
  parts.push(
    label(LEFT, 26, title, { kind: 'bold' }),
    label(sx(last / 2), HEIGHT - 10, unit, { kind: 'soft small', anchor: 'middle' }),
  );
  const ends = spreadOut(curves.map(({ points }) => sy(points.at(-1)![1])));
  curves.forEach(({ name, points }, i) => {
    const color = `var(--c${i % SERIES_COLORS})`;
    const dashes = i < SERIES_COLORS ? '' : ' stroke-dasharray="6 4"';
    const line = points.map(([x, y]) => `${rounded(sx(x))},${rounded(sy(y))}`).join(' ');
    const [endX, endY] = points.at(-1)!;
    parts.push(
      `<polyline points="${line}" fill="none" stroke="${color}" stroke-width="2" stroke-linejoin="round"${dashes}/>`,
    );
    parts.push(`<circle cx="${rounded(sx(endX))}" cy="${rounded(sy(endY))}" r="3" fill="${color}"/>`);
    parts.push(
      `<line x1="${rounded(right + 10)}" x2="${rounded(right + 24)}" y1="${rounded(ends[i])}" y2="${rounded(ends[i])}" stroke="${color}" stroke-width="3"${dashes}/>`,
    );
    parts.push(label(right + NAME_LEFT, ends[i] + 4, name, { kind: 'small' }));
  });
  return figure(WIDTH, HEIGHT, title, parts.join('\n'));
}

function percentAxis(low: number, right: number, sy: (percent: number) => number): string[] {
  const step = low === 0 ? 20 : 10;
  const ticks = Array.from({ length: 1 + (100 - low) / step }, (_, i) => low + i * step);
  return ticks.flatMap(tick => [
    `<line x1="${LEFT}" x2="${rounded(right)}" y1="${rounded(sy(tick))}" y2="${rounded(sy(tick))}" stroke="var(--line)"/>`,
    label(LEFT - 8, sy(tick) + 4, `${tick} %`, { kind: 'soft small', anchor: 'end' }),
  ]);
}

/** 1, 2 or 5 times a power of ten, so that at most {@link MAX_STEPS} fit into the axis. */
function niceStep(last: number): number {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(last / MAX_STEPS)));
  return [1, 2, 5, 10].map(factor => factor * power).find(step => last / step <= MAX_STEPS)!;
}

/** Heights of labels, moved apart so that none covers another. */
function spreadOut(heights: readonly number[]): number[] {
  const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]);
  const placed = [...heights];
  order.forEach((index, rank) => {
    if (rank > 0) placed[index] = Math.max(placed[index], placed[order[rank - 1]] + LABEL_GAP);
  });
  const excess = Math.max(0, ...placed.map(y => y - (HEIGHT - BOTTOM)));
  return placed.map(y => y - excess);
}

/** Entropy and information of a policy's thoughts during training. */
export interface RegimePath {
  readonly name: string;
  readonly path: readonly {
    readonly step: number;
    /** Share of log N. */
    readonly mi_share: number;
    /** Nats per token. */
    readonly entropy: number;
  }[];
}

const REGIME_NAMES = [
  { x: 1, y: 0, name: 'diverse' },
  { x: 1, y: 1, name: 'template collapse' },
  { x: 0, y: 0, name: 'compressed' },
  { x: 0, y: 1, name: 'low-entropy collapse' },
];

/** Paths of policies by entropy and information of their thoughts, over the four regimes: from the small circle to the large one. */
export function regimePlot(
  title: string,
  runs: readonly RegimePath[],
  thresholds: { readonly entropy: number; readonly mi_share: number },
): string {
  const [mostX, mostY] = [1.6, 0.7];
  const right = WIDTH - 40;
  const place = (x: number) => LEFT + (x / mostX) * (right - LEFT);
  const height = (y: number) => HEIGHT - BOTTOM - (Math.max(0, y) / mostY) * (HEIGHT - BOTTOM - TOP);
  const [border, level] = [place(thresholds.entropy), height(thresholds.mi_share)];
  const parts = [
    label(LEFT, 26, title, { kind: 'bold' }),
    `<rect x="${LEFT}" y="${TOP}" width="${right - LEFT}" height="${HEIGHT - BOTTOM - TOP}" fill="var(--panel)" stroke="var(--line)"/>`,
    `<line x1="${rounded(border)}" x2="${rounded(border)}" y1="${TOP}" y2="${HEIGHT - BOTTOM}" stroke="var(--soft)" stroke-dasharray="4 4"/>`,
    `<line x1="${LEFT}" x2="${right}" y1="${rounded(level)}" y2="${rounded(level)}" stroke="var(--soft)" stroke-dasharray="4 4"/>`,
    label((LEFT + right) / 2, HEIGHT - 8, 'entropy of thoughts, nats per token (conditional_entropy_est)', {
      kind: 'soft small',
      anchor: 'middle',
    }),
    label(LEFT, TOP - 4, 'information, share of the most it can be (mi_seq_share)', { kind: 'soft small' }),
  ];
  for (const { x, y, name } of REGIME_NAMES) {
    const left = x === 1 ? border : LEFT;
    parts.push(label(left + 10, y === 0 ? TOP + 18 : level + 16, name, { kind: 'soft' }));
  }
  for (const tick of [0, 0.5, 1, 1.5]) {
    parts.push(
      label(place(tick), HEIGHT - BOTTOM + 16, String(tick), { kind: 'soft small', anchor: 'middle' }),
    );
  }
  for (const tick of [0, 0.2, 0.4, 0.6]) {
    parts.push(label(LEFT - 8, height(tick) + 4, String(tick), { kind: 'soft small', anchor: 'end' }));
  }
  runs.forEach(({ name, path }, i) => {
    const color = `var(--c${i % SERIES_COLORS})`;
    const places = path.map(({ entropy, mi_share }) => [rounded(place(entropy)), rounded(height(mi_share))]);
    const [[startX, startY], [x, y]] = [places[0], places.at(-1)!];
    const flip = x > (LEFT + right) / 2;
    parts.push(
      `<polyline points="${places.map(at => at.join(',')).join(' ')}" fill="none" stroke="${color}" stroke-width="1.5"/>`,
      `<circle cx="${startX}" cy="${startY}" r="3" fill="${color}"/>`,
      `<circle cx="${x}" cy="${y}" r="6" fill="${color}"/>`,
      label(x + (flip ? -11 : 11), y - 9, name, { kind: 'small', anchor: flip ? 'end' : 'start' }),
    );
  });
  return figure(WIDTH, HEIGHT, title, parts.join('\n'));
}
