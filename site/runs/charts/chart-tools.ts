import { html } from '../../components/html.ts';
import { choose } from '../views/parts.ts';
import { type Axis, type ChartView, DEFAULT_SMOOTHING, positionText } from './chart-view.ts';

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
    choose({ smooth: Number(value) === DEFAULT_SMOOTHING ? '' : value }, true);
  };
  return html`<div class="row fine chart-tools">
    ${
      axes.length > 1 &&
      html`<div class="row tight" role="group" aria-label="Horizontal axis">${axes.map(
        name =>
          html`<button key=${name} type="button" class="small" aria-pressed=${String(name === axis)} onClick=${() => choose({ x: name === 'step' ? '' : name, zoom: '' }, true)}>${name}</button>`,
      )}</div>`
    }
    <label class="pair"><span>smoothing</span>
      <input type="range" min="0" max="0.95" step="0.05" value=${smoothing} onInput=${smooth} />
      <output>${smoothing.toFixed(2)}</output></label>
    <button type="button" class="small" aria-pressed=${String(log)} onClick=${() => choose({ log: log ? '' : 'yes' }, true)}>log scale</button>
    ${zoom && html`<button type="button" class="small" onClick=${() => choose({ zoom: '' }, true)}>${positionText(axis, zoom[0])} to ${positionText(axis, zoom[1])} ✕<span class="visually-hidden"> show all</span></button>`}
  </div>`;
}
