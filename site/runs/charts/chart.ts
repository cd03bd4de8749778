import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { saveFile } from '../../components/buttons.ts';
import { html } from '../../components/html.ts';
import { short } from '../format.ts';
import { choose } from '../views/parts.ts';
import { chartOptions, type Frame, SMALL_HEIGHT, tableOf } from './chart-options.ts';
import type { ChartProps, Curve } from './chart-view.ts';
import { type Axis, type ChartView, DEFAULT_SMOOTHING, positionText } from './chart-view.ts';
import { color, onTheme, variable } from './colors.ts';

/** Height of a legend of one line. */
const LEGEND_HEIGHT = 24;
/** Narrower charts write the last value into the title row. */
const NARROW = 230;

/** Curves over steps, with a description for screen readers. */
export function Chart(props: ChartProps) {
  const { title, curves, height = 220, fill = false, format = short, view } = props;
  const place = useRef<HTMLDivElement>(null);
  const reading = useRef<HTMLOutputElement>(null);
  const chart = useRef<uPlot | undefined>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const shape = JSON.stringify([
    curves.map(({ label, color, low }) => [label, color, low !== undefined]),
    [view?.axis, view?.log, (view?.smoothing ?? 0) > 0, props.references],
  ]);
  useEffect(() => {
    const element = place.current!;
    const read: Frame['read'] = (x, values) => {
      const { curves, format = short, view } = latest.current;
      const narrow = element.clientWidth < NARROW;
      const [value] = curves.length === 1 && (x !== undefined || narrow) ? values : [];
      const place = x === undefined ? '' : `${positionText(view?.axis ?? 'step', x)}: `;
      reading.current!.textContent = typeof value === 'number' ? place + format(value) : '';
    };
    const tall = () => (fill ? Math.max(height, element.clientHeight) : height);
    const make = () => {
      chart.current?.destroy();
      const width = element.clientWidth;
      const events = { read, zoom: (zoom: string) => choose({ zoom }) };
      chart.current = new uPlot(
        chartOptions(() => latest.current, { width, height: tall(), labels: width >= NARROW, ...events }),
        tableOf(latest.current),
        element,
      );
    };
    make();
    const size = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width > 0) chart.current?.setSize({ width, height: tall() });
    });
    size.observe(element);
    const forget = onTheme(make);
    return () => {
      size.disconnect();
      forget();
      chart.current?.destroy();
      chart.current = undefined;
    };
  }, [shape, height, fill]);
  const points = curves.reduce((sum, curve) => sum + curve.x.length, 0);
  const last = curves.map(curve => `${curve.x.at(-1)}:${curve.y.at(-1)}:${curve.at?.(curve.x.at(-1)!)}`);
  useEffect(() => {
    chart.current?.setData(tableOf(props));
  }, [points, last.join(), view?.smoothing, view?.zoom?.join()]);
  const saved = (ending: string) => `${title}.${ending}`;
  const saveImage = async () => {
    const look = { ink: color('--ink'), background: color('--surface'), font: variable('--sans') };
    const image = await pngOf(chart.current!.ctx.canvas, title, look);
    if (image) saveFile(saved('png'), image);
  };
  const saveTable = () => saveFile(saved('csv'), new Blob([csvOf(curves)], { type: 'text/csv' }));
  return html`<figure class="stack chart ${height <= SMALL_HEIGHT ? 'small-chart' : ''}">
    <figcaption><span title=${title}>${title}</span>
      <output class="reading" ref=${reading} aria-hidden="true"></output>
      <span class="save push">
        <button type="button" class="link" onClick=${saveTable}>CSV<span class="visually-hidden"> of ${title}</span></button>
        <button type="button" class="link" onClick=${saveImage}>PNG<span class="visually-hidden"> of ${title}</span></button>
      </span></figcaption>
    <div class="plot" ref=${place} style=${{ minHeight: `${height + (props.legend ? LEGEND_HEIGHT : 0)}px`, contain: fill ? 'size' : undefined }} role="img" aria-label=${inWords(title, curves, format)}></div>
  </figure>`;
}

/** Description of a chart in a sentence. */
function inWords(title: string, curves: readonly Curve[], format: (value: number) => string): string {
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

const MARGIN = 12;

/** The values of curves by step as CSV. */
export function csvOf(curves: readonly Curve[]): string {
  const columns = curves.flatMap(({ label, x, y, low, high }) => [
    { name: label, x, y },
    ...(low && high
      ? [
          { name: `${label} low`, x, y: low },
          { name: `${label} high`, x, y: high },
        ]
      : []),
  ]);
  const steps = [...new Set(columns.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const values = columns.map(({ x, y }) => new Map(x.map((step, i) => [step, y[i]])));
  const lines = steps.map(step => [step, ...values.map(column => column.get(step) ?? '')].join(','));
  return [['step', ...columns.map(({ name }) => quoted(name))].join(','), ...lines, ''].join('\n');
}

/** A name as a field of CSV; one that a spreadsheet would read as a formula gets a leading apostrophe. */
function quoted(name: string): string {
  const safe = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** A chart's image with its title above, on the page's background. */
function pngOf(
  chart: HTMLCanvasElement,
  title: string,
  { ink, background, font }: { readonly ink: string; readonly background: string; readonly font: string },
): Promise<Blob | null> {
  const scale = devicePixelRatio;
  const head = 32 * scale;
  const canvas = document.createElement('canvas');
  canvas.width = chart.width + 2 * MARGIN * scale;
  canvas.height = chart.height + head + MARGIN * scale;
  const context = canvas.getContext('2d')!;
  context.fillStyle = background;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = ink;
  context.font = `600 ${13 * scale}px ${font}`;
  context.textBaseline = 'middle';
  context.fillText(title, MARGIN * scale, head / 2 + 2 * scale);
  context.drawImage(chart, MARGIN * scale, head);
  return new Promise(done => canvas.toBlob(done, 'image/png'));
}

interface ChartToolsProps {
  readonly view: ChartView;
  /** Axes to choose from. */
  readonly axes: readonly Axis[];
}

/** The controls of all charts of a page; the choices are in the address. */
export function ChartTools({ view, axes }: ChartToolsProps) {
  const { axis, smoothing, log, zoom } = view;
  const smooth = (event: Event) => {
    const { value } = event.currentTarget as HTMLInputElement;
    choose({ smooth: Number(value) === DEFAULT_SMOOTHING ? '' : value });
  };
  return html`<div class="row fine chart-tools">
    ${
      axes.length > 1 &&
      html`<div class="row tight" role="group" aria-label="Horizontal axis">${axes.map(
        name =>
          html`<button key=${name} type="button" class="small" aria-pressed=${String(name === axis)} onClick=${() => choose({ x: name === 'step' ? '' : name, zoom: '' })}>${name}</button>`,
      )}</div>`
    }
    <label class="pair"><span>smoothing</span>
      <input type="range" min="0" max="0.95" step="0.05" value=${smoothing} onInput=${smooth} />
      <output>${smoothing.toFixed(2)}</output></label>
    <button type="button" class="small" aria-pressed=${String(log)} onClick=${() => choose({ log: log ? '' : 'yes' })}>log scale</button>
    ${zoom && html`<button type="button" class="small" onClick=${() => choose({ zoom: '' })}>${positionText(axis, zoom[0])} to ${positionText(axis, zoom[1])} ✕<span class="visually-hidden"> show all</span></button>`}
  </div>`;
}
