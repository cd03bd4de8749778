import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { html } from '../../components/html.ts';
import { short } from '../format.ts';

/** One curve of a chart. */
export interface Curve {
  readonly label: string;
  readonly x: readonly number[];
  readonly y: readonly number[];
  /** Color number, from 0. */
  readonly color?: number;
  readonly dashed?: boolean;
  /** A band between two curves on the same x. */
  readonly low?: readonly number[];
  readonly high?: readonly number[];
}

export interface ChartProps {
  readonly title: string;
  readonly curves: readonly Curve[];
  readonly height?: number;
  /** Values of y that are always in view. */
  readonly range?: readonly [number, number];
  /** Formats a value. */
  readonly format?: (value: number) => string;
  /** Curves one on top of the other, filled. */
  readonly stacked?: boolean;
  /** Shows the names of the curves with the values under the pointer. */
  readonly legend?: boolean;
  /** A logarithmic axis. */
  readonly log?: boolean;
}

const COLORS = [
  '--curve-1',
  '--curve-2',
  '--curve-3',
  '--curve-4',
  '--curve-5',
  '--curve-6',
  '--curve-7',
  '--curve-8',
];
/** Distances of ticks over steps, which are whole. */
const WHOLE_STEPS = [1, 2, 5]
  .flatMap(first => Array.from({ length: 9 }, (_, power) => first * 10 ** power))
  .sort((a, b) => a - b);
const PALE = '66';
const WASH = '2b';

const DARK = matchMedia('(prefers-color-scheme: dark)');
/** Values read from the styles of a theme: reading them for each chart makes the browser compute all styles again. */
const known = { theme: '', values: new Map<string, string>() };

function fromStyles(name: string, read: () => string): string {
  const theme = `${document.documentElement.dataset.theme} ${DARK.matches}`;
  if (known.theme !== theme) {
    known.theme = theme;
    known.values.clear();
  }
  const value = known.values.get(name) ?? read();
  known.values.set(name, value);
  return value;
}

const variable = (name: string): string =>
  fromStyles(`${name} as it is`, () =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
  );

/** A color of the present theme as `#rrggbb`, which canvases take. */
function color(name: string): string {
  return fromStyles(name, () => {
    const probe = document.createElement('span');
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g)!.map(Number);
    probe.remove();
    return `#${[r, g, b].map(part => part.toString(16).padStart(2, '0')).join('')}`;
  });
}

/** Curves over steps, with the same in words for those who cannot see them. */
export function Chart(props: ChartProps) {
  const { title, curves, height = 220, format = short } = props;
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const shape = JSON.stringify(curves.map(({ label, dashed, low }) => [label, dashed, low !== undefined]));
  useEffect(() => {
    const element = place.current!;
    const make = () => {
      chart.current?.destroy();
      chart.current = new uPlot(options(props, element.clientWidth, height), dataOf(props), element);
    };
    make();
    const size = new ResizeObserver(() => {
      if (element.clientWidth > 0) chart.current?.setSize({ width: element.clientWidth, height });
    });
    size.observe(element);
    DARK.addEventListener('change', make);
    const theme = new MutationObserver(make);
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    return () => {
      size.disconnect();
      theme.disconnect();
      DARK.removeEventListener('change', make);
      chart.current?.destroy();
      chart.current = undefined;
    };
  }, [shape, height]);
  const points = curves.reduce((sum, curve) => sum + curve.x.length, 0);
  const last = curves.map(curve => `${curve.x.at(-1)}:${curve.y.at(-1)}`).join();
  useEffect(() => {
    chart.current?.setData(dataOf(props));
  }, [points, last]);
  return html`<figure class="chart">
    <figcaption>${title}</figcaption>
    <div class="plot" ref=${place} role="img" aria-label=${inWords(title, curves, format)}></div>
  </figure>`;
}

/** Description of a chart in a sentence. */
export function inWords(title: string, curves: readonly Curve[], format: (value: number) => string): string {
  const parts = curves
    .filter(({ y }) => y.length > 0)
    .map(({ label, x, y }) => {
      const first = y.find(value => !Number.isNaN(value)) ?? Number.NaN;
      const last = y.at(-1)!;
      return x.length === 1 || first === last
        ? `${label} ${format(last)}`
        : `${label} from ${format(first)} at step ${x[0]} to ${format(last)} at step ${x.at(-1)}`;
    });
  return `${title}: ${parts.join('; ') || 'no values yet'}`;
}

type Table = [x: number[], ...y: (number | null | undefined)[][]];

/** The curves over one common x. Bands are two further rows of a curve. */
function dataOf({ curves, stacked }: ChartProps): uPlot.AlignedData {
  if (curves.length === 0) return [[]];
  const values = (list: readonly number[]) => list.map(value => (Number.isNaN(value) ? null : value));
  const tables = curves.map(
    ({ x, y, low, high }): Table => [[...x], values(y), ...(low && high ? [values(high), values(low)] : [])],
  );
  const joined =
    tables.length === 1 ? tables[0] : (uPlot.join(tables as uPlot.AlignedData[]) as unknown as Table);
  if (!stacked) return joined as uPlot.AlignedData;
  const [x, ...rows] = joined;
  const sums = new Array(x.length).fill(0);
  const stack = rows.map(row => row.map((value, i) => (sums[i] += value ?? 0)));
  // The topmost first, so that each lower one is drawn over it.
  return [x, ...stack] as uPlot.AlignedData;
}

function options(
  { curves, range, format = short, stacked, legend, log }: ChartProps,
  width: number,
  height: number,
): uPlot.Options {
  const ink = color('--ink-soft');
  const line = color('--line');
  const axis = {
    stroke: ink,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1 },
    font: `11px ${variable('--sans')}`,
  };
  const series: uPlot.Series[] = [{ label: 'step' }];
  const bands: uPlot.Band[] = [];
  curves.forEach(({ label, color: number, dashed, low }, i) => {
    const stroke = dashed ? ink : color(COLORS[(number ?? i) % COLORS.length]);
    const at = series.length;
    series.push({
      label,
      stroke,
      width: dashed ? 1 : 2,
      ...(dashed ? { dash: [6, 4] } : {}),
      ...(stacked ? { fill: stroke + PALE } : {}),
      spanGaps: true,
      points: { show: curves[i].x.length <= 30 && !dashed, size: 5 },
      value: (_plot, value) => (value === null || value === undefined ? '–' : format(value)),
    });
    if (!low) return;
    for (const side of ['high', 'low']) {
      series.push({
        label: `${label} ${side}`,
        class: 'band',
        stroke: 'transparent',
        points: { show: false },
        spanGaps: true,
      });
    }
    bands.push({ series: [at + 1, at + 2], fill: stroke + WASH });
  });
  return {
    width: Math.max(width, 100),
    height,
    series,
    bands: stacked ? curves.slice(1).map((_, i) => ({ series: [i + 2, i + 1] as [number, number] })) : bands,
    legend: { show: legend === true, live: true },
    cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false } },
    scales: {
      x: { time: false },
      y: {
        ...(log ? { distr: 3 as const } : {}),
        ...(range
          ? {
              range: (_plot, low, high) =>
                [Math.min(range[0], low ?? range[0]), Math.max(range[1], high ?? range[1])] as [
                  number,
                  number,
                ],
            }
          : {}),
      },
    },
    axes: [
      { ...axis, size: 28, incrs: WHOLE_STEPS },
      {
        ...axis,
        size: (_plot, labels) => 17 + 7 * Math.max(5, ...(labels ?? []).map(({ length }) => length)),
        values: (_plot, ticks) => ticks.map(value => (value === null ? '' : format(value))),
      },
    ],
  };
}
