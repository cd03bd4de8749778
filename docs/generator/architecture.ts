import { figure, label } from './svg.ts';

const WIDTH = 880;
const HEIGHT = 430;

interface Box {
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
  readonly title: string;
  readonly note?: string;
}

const SERVER: readonly Box[] = [
  {
    x: 40,
    y: 76,
    w: 280,
    h: 56,
    title: 'transports',
    note: 'REST · WebSocket · OpenEnv, MCP · gym-http-api',
  },
  { x: 40, y: 156, w: 280, h: 44, title: 'stages', note: 'one list around one table of operations' },
  { x: 40, y: 224, w: 280, h: 44, title: 'sessions', note: 'episodes, limits, request keys' },
  { x: 40, y: 292, w: 134, h: 56, title: 'environments', note: '+ wrappers, custom' },
  { x: 186, y: 292, w: 134, h: 56, title: 'persistence', note: 'SQLite, journal' },
];
const TRAINER: readonly Box[] = [
  { x: 480, y: 76, w: 110, h: 56, title: 'client', note: 'several servers' },
  { x: 606, y: 76, w: 110, h: 56, title: 'rollout', note: 'groups, prompts' },
  { x: 732, y: 76, w: 110, h: 56, title: 'generation', note: 'KV cache, sampling' },
  { x: 606, y: 160, w: 110, h: 56, title: 'data', note: 'sequences, batches' },
  { x: 732, y: 160, w: 110, h: 56, title: 'policy', note: 'weights, LoRA' },
  { x: 480, y: 244, w: 110, h: 56, title: 'tracking', note: 'run folder' },
  { x: 606, y: 244, w: 110, h: 56, title: 'training', note: 'advantages, loss' },
  { x: 732, y: 244, w: 110, h: 56, title: 'models', note: 'Qwen, Llama' },
  { x: 606, y: 328, w: 236, h: 44, title: 'tensor', note: 'graph → ONNX Runtime or WebGPU' },
];
/** Arrows as paths; each ends where its head is. */
const ARROWS = [
  'M180 132 V152',
  'M180 200 V220',
  'M107 268 V288',
  'M253 268 V288',
  'M590 104 H602',
  'M716 104 H728',
  'M661 132 V156',
  'M661 216 V240',
  'M716 264 H724 V196 H728',
  'M787 156 V136',
  'M606 272 H594',
  'M787 216 V240',
  'M787 300 V324',
  'M661 300 V324',
];

/** The two programs, their parts, and the contract between them. */
export function architecture(): string {
  const parts = [
    program(24, 'env-server', 312),
    program(464, 'trainer', 394),
    ...[...SERVER, ...TRAINER].map(box),
    ...ARROWS.map(d => `<path class="arrow" d="${d}"/>`),
    '<path class="arrow both" d="M328 104 H472"/>',
    label(400, 94, 'HTTP, WebSocket', { kind: 'small', anchor: 'middle' }),
    '<rect class="paper" x="346" y="160" width="108" height="56" rx="6"/>',
    label(400, 184, 'openapi', { kind: 'bold', anchor: 'middle' }),
    label(400, 202, 'the contract', { kind: 'soft small', anchor: 'middle' }),
    '<path class="arrow dashed" d="M320 178 H342"/><path class="arrow dashed" d="M454 188 H502 V136"/>',
    label(400, 236, 'generated from', { kind: 'soft small', anchor: 'middle' }),
    label(400, 250, 'the operations', { kind: 'soft small', anchor: 'middle' }),
    label(180, 410, 'Also plays: curl, Python, agents over MCP, a browser', {
      kind: 'soft small',
      anchor: 'middle',
    }),
  ];
  const style = `
.arrow { stroke: var(--soft); fill: none; marker-end: url(#head); stroke-width: 1.5; }
.both { marker-start: url(#head); stroke: var(--c0); stroke-width: 2; } .dashed { stroke-dasharray: 4 3; } #head path { fill: var(--soft); }`;
  const head =
    '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>';
  return figure(
    WIDTH,
    HEIGHT,
    'The environment server and the trainer',
    `${head}\n${parts.join('\n')}`,
    style,
  );
}

function program(x: number, title: string, width: number): string {
  return `<rect class="panel" x="${x}" y="24" width="${width}" height="364" rx="8"/>${label(x + 16, 52, title, { kind: 'bold' })}`;
}

function box({ x, y, w, h, title, note }: Box): string {
  const middle = x + w / 2;
  const first = label(middle, y + (note ? h / 2 - 3 : h / 2 + 5), title, { kind: 'bold', anchor: 'middle' });
  const second = note ? label(middle, y + h / 2 + 14, note, { kind: 'soft small', anchor: 'middle' }) : '';
  return `<rect class="paper" x="${x}" y="${y}" width="${w}" height="${h}" rx="6"/>${first}${second}`;
}
