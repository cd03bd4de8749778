/** Parts that all figures share: colors for light and dark, text, elements. */

/** Colors by role; a figure follows the reader's color scheme. */
const STYLE = `
:root { --paper: #ffffff; --panel: #f6f8fa; --line: #d0d7de; --ink: #1f2328; --soft: #59636e;
  --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #7d6608; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --panel: #151b23; --line: #3d444d; --ink: #f0f6fc; --soft: #9198a1;
    --c0: #4493f8; --c1: #f0883e; --c2: #3fb950; --c3: #ab7df8; --c4: #db61a2; --c5: #d4b72f; }
}
text { font: 13px ui-sans-serif, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: var(--ink); }
.soft { fill: var(--soft); } .small { font-size: 11px; } .bold { font-weight: 600; }
.mono { font-family: ui-monospace, "SF Mono", Menlo, "Liberation Mono", monospace; font-size: 12px; white-space: pre; }
.panel { fill: var(--panel); stroke: var(--line); } .paper { fill: var(--paper); stroke: var(--line); }`;

/** Series have these colors in their order. */
export const SERIES_COLORS = 6;

/** Text escaped for XML. Characters that XML does not allow become `�`. */
function escapeXml(text: string): string {
  const plain = text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what XML does not take.
  return plain.replaceAll(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, '�');
}

/** A whole figure. @param title what a screen reader says */
export function figure(width: number, height: number, title: string, body: string, style = ''): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">
<title>${escapeXml(title)}</title>
<style>${STYLE}${style}
</style>
<rect class="paper" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="8"/>
${body}
</svg>
`;
}

export interface LabelOptions {
  readonly kind?: string;
  readonly anchor?: 'start' | 'middle' | 'end';
}

/** A line of text; `y` is its baseline. */
export function label(x: number, y: number, text: string, { kind, anchor }: LabelOptions = {}): string {
  const attributes = `${kind ? ` class="${kind}"` : ''}${anchor && anchor !== 'start' ? ` text-anchor="${anchor}"` : ''}`;
  return `<text x="${rounded(x)}" y="${rounded(y)}"${attributes}>${escapeXml(text)}</text>`;
}

/** A coordinate with at most one decimal. */
export function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}
