import type { Curve } from './chart-props.ts';

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
export function pngOf(
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
