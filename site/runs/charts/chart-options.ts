import uPlot from 'uplot';
import { duration, short } from '../format.ts';
import type { ChartProps, Curve } from './chart-view.ts';
import { smoothed } from './chart-view.ts';
import { color, variable } from './colors.ts';

/** Charts up to this height have two labels on the y axis. */
export const SMALL_HEIGHT = 160;
/** Most curves with their last value at their end; with more, the legend shows it. */
const MAX_LABELS = 5;
export const CURVES = 8;
/** A shorter drag counts as a click, in pixels. */
const SHORTEST_DRAG = 4;
/** Tick distances for counts, and for seconds. */
const WHOLE = [1, 2, 5]
  .flatMap(first => Array.from({ length: 12 }, (_, power) => first * 10 ** power))
  .sort((a, b) => a - b);
const SECONDS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 864_000];
/** Relative differences of values that count as none. */
const ROUNDING = 1e-9;
const RAW = '55';
const FILL = '66';
const WASH = '2b';

type Column = (number | null | undefined)[];
type Table = [x: number[], ...y: Column[]];

export interface Frame {
  readonly width: number;
  readonly height: number;
  /** True where curves have their last value at their end. */
  readonly labels: boolean;
  /** Reports the values under the pointer; the last values, without a position, where it is elsewhere. */
  read(x: number | undefined, values: Column): void;
  /** Requests a range of x, in the form of addresses. */
  zoom(part: string): void;
}

const smoothing = ({ view, exact }: ChartProps): number => (exact ? 0 : (view?.smoothing ?? 0));

/** The curves over one common x. A smoothed curve has its raw values before it, and its band after it. */
export function tableOf(props: ChartProps): uPlot.AlignedData {
  const { curves, stacked } = props;
  if (curves.length === 0) return [[]];
  const weight = smoothing(props);
  const column = (list: readonly number[]): Column =>
    list.map(value => (Number.isFinite(value) ? value : null));
  const tables = curves.map(({ x, y, low, high, at }): Table => {
    const raw = weight > 0 ? [column(y)] : [];
    const band = low && high ? [high, low].map(edge => column(smoothed(edge, weight))) : [];
    return [x.map(step => at?.(step) ?? step), ...raw, column(smoothed(y, weight)), ...band];
  });
  const joined =
    tables.length === 1 ? tables[0] : (uPlot.join(tables as uPlot.AlignedData[]) as unknown as Table);
  if (!stacked) return joined as uPlot.AlignedData;
  const [x, ...rows] = joined;
  const sums = new Array(x.length).fill(0);
  const stack = rows.map(row => row.map((value, i) => (sums[i] += value ?? 0)));
  return [x, ...stack] as uPlot.AlignedData;
}

/** The difference of a stacked curve to the one below it. */
export function addedAt(data: uPlot.AlignedData, at: number, index: number): number {
  return (data[at][index] ?? 0) - ((at > 1 && data[at - 1][index]) || 0);
}

const strokeOf = ({ color: number }: Curve, i: number): string =>
  color(`--curve-${((number ?? i) % CURVES) + 1}`);

/** Indices of the curves among the series, their styles, and the bands between two of them. */
function seriesOf({ curves, stacked, format = short, ...props }: ChartProps) {
  const weight = smoothing({ curves, ...props });
  const back = weight > 0 ? 1 : 0;
  const position = (_: uPlot, at: number | null) => at?.toLocaleString('en-US') ?? 'last';
  const series: uPlot.Series[] = [{ label: props.view?.axis ?? 'step', value: position }];
  const bands: uPlot.Band[] = [];
  const mains: number[] = [];
  const hidden = { class: 'band', points: { show: false }, spanGaps: true };
  curves.forEach((curve, i) => {
    const { label, low, high, x } = curve;
    const stroke = strokeOf(curve, i);
    if (weight > 0) series.push({ ...hidden, label: `${label} raw`, stroke: stroke + RAW, width: 1 });
    mains.push(series.length);
    series.push({
      label,
      stroke,
      width: 2,
      ...(stacked ? { fill: stroke + FILL } : {}),
      spanGaps: true,
      points: { show: x.length <= 30 && weight === 0, size: 5 },
      value: (plot, value, at, index) =>
        value === null || value === undefined
          ? '–'
          : format(stacked ? addedAt(plot.data, at, index!) : (plot.data[at - back][index!] ?? value)),
    });
    if (!low || !high) return;
    const at = series.length;
    for (const side of ['high', 'low'])
      series.push({ ...hidden, label: `${label} ${side}`, stroke: 'transparent' });
    bands.push({ series: [at, at + 1], fill: stroke + WASH });
  });
  const layers = curves.slice(1).map((_, i) => ({ series: [i + 2, i + 1] as [number, number] }));
  return { series, mains, bands: stacked ? layers : bands };
}

/** Limits of y: from 0 unless all values are far from it. */
export function limitsOf(
  low: number | null,
  high: number | null,
  fixed?: readonly [number, number],
): [number, number] {
  if (low === null || high === null) return [fixed?.[0] ?? 0, fixed?.[1] ?? 1];
  if (fixed) return [Math.min(fixed[0], low), Math.max(fixed[1], high)];
  const size = Math.max(Math.abs(low), Math.abs(high));
  // Smoothing leaves rounding differences: a level curve is drawn level.
  if (high - low <= ROUNDING * size)
    return [Math.min(0, 1.25 * low), Math.max(0, 1.25 * high) || Number(low === 0)];
  if (high - low > size / 3) {
    const room = 0.05 * (high - low);
    return [low >= 0 ? 0 : low - room, high <= 0 ? 0 : high + room];
  }
  const room = 0.1 * (high - low);
  return [low - room, high + room];
}

/**
 * Options of a chart.
 * @param latest its current properties: limits and labels follow them without a new chart
 */
export function chartOptions(latest: () => ChartProps, frame: Frame): uPlot.Options {
  const props = latest();
  const { series, mains, bands } = seriesOf(props);
  const labelled = frame.labels && !props.stacked && mains.length <= MAX_LABELS;
  return {
    width: Math.max(frame.width, 100),
    height: frame.height,
    series,
    bands,
    padding: [8, labelled ? plot => endWidth(plot, mains, props.format ?? short) : 8, 0, 0],
    legend: { show: props.legend === true, live: true },
    cursor: cursorOf(props, frame),
    hooks: hooksOf(latest, frame, { mains, labelled }),
    scales: scalesOf(latest),
    axes: axesOf(props, frame),
  };
}

/**
 * The index at which a curve is read for a place on x: its nearest value, and none before its first or after its last.
 */
export function readAt(column: ArrayLike<number | null | undefined>, at: number): number | null {
  const has = (index: number) => column[index] !== undefined && index >= 0 && index < column.length;
  let [before, after] = [at, at];
  while (before >= 0 && !has(before)) before--;
  while (after < column.length && !has(after)) after++;
  if (!has(before) || !has(after)) return null;
  return at - before <= after - at ? before : after;
}

function cursorOf({ view }: ChartProps, frame: Frame): uPlot.Cursor {
  const alone: uPlot.Cursor = {
    y: false,
    points: { size: 6 },
    drag: { x: view !== undefined, y: false, setScale: false },
    // Nothing is read at null, which uPlot's types leave out.
    dataIdx: ({ data }, series, at) => (series === 0 ? at : readAt(data[series], at)!),
  };
  if (!view) return alone;
  return {
    ...alone,
    sync: {
      key: view.axis,
      setSeries: false,
      scales: ['x', null],
      filters: { pub: type => type === 'mousemove' || type === 'mouseleave' },
    },
    bind: {
      dblclick: () => () => {
        frame.zoom('');
        return null;
      },
    },
  };
}

interface Marks {
  /** Indices of the curves among the series. */
  readonly mains: readonly number[];
  readonly labelled: boolean;
}

function hooksOf(latest: () => ChartProps, frame: Frame, { mains, labelled }: Marks): uPlot.Hooks.Arrays {
  const { format = short, legend, references = [] } = latest();
  // A chart writes the raw values, which precede the smoothed ones.
  const back = smoothing(latest()) > 0 ? 1 : 0;
  // Another chart's pointer moves this one's, too, but only its own drags zoom it.
  let pressed = false;
  const valuesAt = (plot: uPlot, index: number) => mains.map(at => plot.data[at - back][index]);
  const showLast = (plot: uPlot) => {
    const last = plot.data[0].length - 1;
    if (legend) plot.setLegend({ idxs: lastOf(plot.data) }, false);
    frame.read(undefined, valuesAt(plot, last));
  };
  const select = (plot: uPlot) => {
    const { left, width } = plot.select;
    if (!pressed || width < SHORTEST_DRAG) return;
    pressed = false;
    const [from, to] = [left, left + width].map(at => Number(plot.posToVal(at, 'x').toPrecision(4)));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (to > from) frame.zoom(`${from}:${to}`);
  };
  const follow = (plot: uPlot) => {
    const { idx } = plot.cursor;
    if (idx === null || idx === undefined) return showLast(plot);
    frame.read(plot.data[0][idx], valuesAt(plot, idx));
  };
  const draw = (plot: uPlot) => {
    for (const reference of references) drawReference(plot, reference, format);
    if (!labelled) return;
    const { curves } = latest();
    const ends = mains.map((at, i) => ({ at, stroke: strokeOf(curves[i], i) }));
    drawEnds(plot, ends, back, format);
  };
  const press = (plot: uPlot) => {
    plot.over.addEventListener('mousedown', () => {
      pressed = true;
    });
    showLast(plot);
  };
  return { ready: [press], setData: [showLast], setCursor: [follow], setSelect: [select], draw: [draw] };
}

/** Index of the last value of each column; without one for x where the columns end at different places. */
export function lastOf([x, ...columns]: uPlot.AlignedData): (number | null)[] {
  const ends = columns.map(column => column.findLastIndex(value => value !== null && value !== undefined));
  return [
    x.length > 0 && ends.every(end => end === x.length - 1) ? x.length - 1 : null,
    ...ends.map(end => (end === -1 ? null : end)),
  ];
}

function isLog({ curves, view }: ChartProps): boolean {
  const positive = curves.every(({ y }) => y.every(value => !(value <= 0)));
  return view?.log === true && positive && curves.some(({ y }) => y.length > 0);
}

function scalesOf(latest: () => ChartProps): uPlot.Scales {
  const { references = [], range } = latest();
  const values = references.map(({ value }) => value);
  const y: uPlot.Scale = {
    range: (_plot, low, high) => {
      const all = [...values, low, high].filter(value => value !== null && value !== undefined);
      const known = all.length > 0;
      return limitsOf(known ? Math.min(...all) : null, known ? Math.max(...all) : null, range);
    },
  };
  const x: uPlot.Scale = {
    time: false,
    range: ({ data: [all] }, low, high) => {
      const zoom = latest().view?.zoom;
      if (zoom) return [zoom[0], zoom[1]];
      // uPlot widens the range of a single value to hundreds.
      return all.length > 1 && low !== high ? [low, high] : [all[0] ?? 0, (all[0] ?? 0) + 1];
    },
  };
  return { x, y: isLog(latest()) ? { distr: 3 } : y };
}

function axesOf(props: ChartProps, { height }: Frame): uPlot.Axis[] {
  const { format = short, view } = props;
  const small = height <= SMALL_HEIGHT;
  const both = { stroke: color('--ink-soft'), font: `12px ${variable('--sans')}`, ticks: { show: false } };
  const isTime = view?.axis === 'time';
  const ends: uPlot.Axis = { splits: (_plot, _axis, low, high) => [low, high] };
  return [
    {
      ...both,
      size: 26,
      ...(small ? ends : { space: 60 }),
      grid: { show: false },
      incrs: isTime ? SECONDS : WHOLE,
      values: (_plot, ticks) => ticks.map(isTime ? duration : short),
    },
    {
      ...both,
      grid: { stroke: color('--line'), width: 1 },
      size: (_plot, labels) => 14 + 7 * Math.max(3, ...(labels ?? []).map(({ length }) => length)),
      ...(small && !isLog(props) ? ends : { space: 44 }),
      values: (_plot, ticks) => ticks.map(value => (value === null ? '' : format(value))),
    },
  ];
}

/** Room for the last values, to the right of the curves. */
function endWidth(plot: uPlot, mains: readonly number[], format: (value: number) => string): number {
  const lengths = mains.map(at => {
    const column = plot.data?.[at] as Column | undefined;
    const last = column?.findLast(value => value !== null && value !== undefined);
    return typeof last === 'number' ? format(last).length : 0;
  });
  return 22 + 8 * Math.max(3, ...lengths);
}

/** Least distance of two labels. */
const LABEL_HEIGHT = 14;

/** A dashed line over the whole width with its name. */
function drawReference(
  plot: uPlot,
  { label, value }: { readonly label: string; readonly value: number },
  format: (value: number) => string,
): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const y = Math.round(plot.valToPos(value, 'y', true));
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = color('--ink-soft');
  ctx.lineWidth = ratio;
  ctx.setLineDash([6 * ratio, 4 * ratio]);
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.font = `${12 * ratio}px ${variable('--sans')}`;
  ctx.textAlign = 'right';
  ctx.textBaseline = 'bottom';
  ctx.fillText(`${label} ${format(value)}`, bbox.left + bbox.width, y - 3 * ratio);
  ctx.restore();
}

/**
 * The last value of each visible curve at its end, moved apart where they would overlap.
 * @param back columns from a curve back to the values that are written
 */
function drawEnds(
  plot: uPlot,
  curves: readonly { readonly at: number; readonly stroke: string }[],
  back: number,
  format: (value: number) => string,
): void {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const { min, max } = plot.scales.x;
  const ends = curves.flatMap(({ at, stroke }) => {
    const column = plot.data[at];
    const index = column.findLastIndex(
      (value, j) =>
        value !== null && value !== undefined && plot.data[0][j] >= min! && plot.data[0][j] <= max!,
    );
    if (index === -1) return [];
    const value = column[index]!;
    const [x, y] = [plot.valToPos(plot.data[0][index], 'x', true), plot.valToPos(value, 'y', true)];
    return [{ x, y, text: y, value: plot.data[at - back][index] ?? value, stroke }];
  });
  ends.sort((a, b) => a.y - b.y);
  for (let i = 1; i < ends.length; i++)
    ends[i].text = Math.max(ends[i].y, ends[i - 1].text + LABEL_HEIGHT * ratio);
  ctx.save();
  ctx.font = `600 ${13 * ratio}px ${variable('--sans')}`;
  ctx.textAlign = 'left';
  ctx.textBaseline = 'middle';
  ctx.strokeStyle = color('--surface');
  ctx.lineWidth = 4 * ratio;
  ctx.lineJoin = 'round';
  for (const { x, y, text, value, stroke } of ends) {
    ctx.fillStyle = stroke;
    ctx.beginPath();
    ctx.arc(x, y, 3.5 * ratio, 0, 2 * Math.PI);
    ctx.fill();
    // The line of another curve passes behind the text.
    const left = Math.max(x, bbox.left) + 9 * ratio;
    ctx.strokeText(format(value), left, text);
    ctx.fillText(format(value), left, text);
  }
  ctx.restore();
}
