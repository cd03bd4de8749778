import { counted } from '../../../shared/text.ts';
import { html } from '../../components/html.ts';
import { Chart } from '../charts/chart.ts';
import type { Curve } from '../charts/chart-view.ts';
import { useMetrics } from '../data/hooks.ts';
import { duration, percent, short } from '../format.ts';
import type { RunViewProps } from './parts.ts';
import { Panel, Status } from './parts.ts';

/** Parts of a step, in order. */
const PARTS = ['gen', 'diagnostics', 'adv', 'update_actor'] as const;
const LABELS: { readonly [part in (typeof PARTS)[number]]: string } = {
  gen: 'collect',
  diagnostics: 'diagnose',
  adv: 'advantages',
  update_actor: 'update',
};

/** Times of a run's steps, and its servers. */
export function SystemView({ store }: RunViewProps) {
  const idle = ['trainer/idle_ratio', 'rollouter/idle_ratio', 'perf/policy_busy_ratio'];
  const stale = ['rollouter/staleness_mean', 'rollouter/staleness_max', 'rollouter/stale_groups_dropped'];
  const speed = ['perf/tokens_per_second', 'perf/train_tokens_per_second', 'perf/throughput'];
  const servers = [
    'rollouter/agent_wait_s',
    'rollouter/environment_wait_s',
    'rollouter/replayed_episodes',
    'rollouter/dropped_groups',
    'errored_rollouts',
  ];
  const names = [
    ...PARTS.map(part => `timing_s/${part}`),
    'timing_s/step',
    'timing_s/testing',
    'timing_s/save_checkpoint',
    ...idle,
    ...stale,
    ...speed,
    ...servers,
  ];
  const unread = useMetrics(store, names);
  // Rendered together: parts that come later would move the page.
  if (!store.knows(names)) return html`<div class="tiles" style="--tile: 30rem" aria-busy="true"></div>`;
  const curves = (names: readonly string[]): Curve[] =>
    names
      .filter(name => store.series(name).x.length > 0)
      .map(name => ({ label: name, ...store.series(name) }));
  const { row, config } = store.detail!;
  const { servers: engines = [], policy = {} } = (config ?? {}) as {
    servers?: { url?: string; weight?: number }[];
    policy?: Record<string, unknown>;
  };
  return html`<div class="tiles" style="--tile: 30rem">
    <${Status} error=${unread} />
    <${Panel} title="Seconds of a step" class="wide">
      <${Chart} title="One on top of the other" stacked=${true} legend=${true} curves=${PARTS.map(part => ({ label: LABELS[part], ...store.series(`timing_s/${part}`) }))} />
    <//>
    <${Panel} title="Idle and busy">
      <${Chart} title="Shares of the step" range=${[0, 1]} format=${percent} legend=${true} curves=${curves(idle)} />
    <//>
    <${Panel} title="Speed">
      <${Chart} title="Tokens per second" legend=${true} curves=${curves(speed)} />
    <//>
    ${curves(stale).length > 0 && html`<${Panel} title="Staleness"><${Chart} title="Iterations behind, and groups that were too old" legend=${true} curves=${curves(stale)} /><//>`}
    <${Panel} title="Waiting and lost episodes">
      <${Chart} title="Seconds an episode waits" legend=${true} curves=${curves(servers.slice(0, 2))} />
      <dl class="facts">${servers.slice(2).map(name => html`<div key=${name}><dt><code>${name}</code></dt><dd>${short(store.series(name).y.reduce((sum, value) => sum + (value || 0), 0))} in all</dd></div>`)}</dl>
    <//>
    <${Panel} title="Servers and engines">
      <dl class="facts">
        ${engines.map(({ url, weight }) => html`<div key=${url}><dt>environment server</dt><dd>${url}${weight === undefined || weight === 1 ? '' : `, weight ${weight}`}</dd></div>`)}
        <div><dt>policy</dt><dd>${[policy.init, row.run.parameters === null ? 'size unknown' : `${short(row.run.parameters)} weights`].filter(Boolean).join(', ')}</dd></div>
        <div><dt>runtime</dt><dd>${[policy.runtime ?? 'not recorded', policy.workers !== undefined && counted(Number(policy.workers), 'worker')].filter(Boolean).join(', ')}</dd></div>
        <div><dt>time of training</dt><dd>${duration(row.seconds)}</dd></div>
      </dl>
    <//>
  </div>`;
}
