import type uPlot from 'uplot';
import { color, variable } from './colors.ts';

/** Least distance of two labels. */
const LABEL_HEIGHT = 14;

/** A dashed line over the whole width with its name. */
export function drawReference(
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
export function drawEnds(
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
