import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { parse } from 'yaml';
import { lacksValkey, testValkey } from '../../env-server/store/valkey.test-data.ts';
import type { Body } from '../../test/app.test-data.ts';
import { freePort } from '../../test/free-port.test-data.ts';
import { listening, runServer } from '../../test/process.test-data.ts';
import { SELDOM_MS, until } from '../../test/until.test-data.ts';

/** A server and Prometheus start, and Prometheus scrapes twice. */
t.setTimeout(300_000);

const FOLDER = import.meta.dirname;
const lacksPrometheus =
  spawnSync('promtool', ['--version']).status !== 0 && 'needs Prometheus: apt-get install prometheus';
const read = (path: string): string => readFileSync(join(FOLDER, path), 'utf8');
const list = (value: Body): Body[] => value as unknown as Body[];

/** Every query of the dashboard, the alerts and the scaler, as Grafana would send it. */
function queries(): Map<string, string> {
  const found = new Map<string, string>();
  const dashboard = JSON.parse(read('grafana-dashboard.json')) as Body;
  for (const panel of list(dashboard.panels)) {
    for (const { expr } of list(panel.targets)) {
      found.set(`panel ${panel.title}`, String(expr).replaceAll('$__rate_interval', '10s'));
    }
  }
  for (const rule of list(list((parse(read('alerts.yaml')) as Body).groups)[0].rules)) {
    found.set(`alert ${rule.alert}`, String(rule.expr));
  }
  const scaler = parse(read('../kubernetes/options/keda.yaml')) as Body;
  for (const [i, trigger] of list(scaler.spec.triggers).entries()) {
    found.set(`trigger ${i}`, String(trigger.metadata.query));
  }
  return found;
}

t.test(
  'promtool: the rules are right, each alert fires for its fault and for nothing else',
  {
    skip: lacksPrometheus,
  },
  async t => {
    for (const args of [
      ['check', 'rules', 'alerts.yaml'],
      ['test', 'rules', 'alerts.test.yaml'],
      ['check', 'config', '--syntax-only', 'prometheus.yaml'],
    ]) {
      const { status, stdout, stderr } = spawnSync('promtool', args, { cwd: FOLDER, encoding: 'utf8' });
      t.equal(status, 0, `${args.join(' ')}: ${stdout}${stderr}`);
    }
    const tested = list((parse(read('alerts.test.yaml')) as Body).tests)[1].alert_rule_test;
    const names = [...queries().keys()].filter(name => name.startsWith('alert '));
    t.same(
      list(tested).map(({ alertname }) => `alert ${alertname}`),
      names,
      'each alert is tested',
    );
  },
);

t.test(
  'Prometheus: every query of dashboard, alerts and scaler finds the series that a server has',
  {
    skip: lacksPrometheus || lacksValkey,
  },
  async t => {
    const folder = mkdtempSync(join(tmpdir(), 'ragen-prometheus-'));
    const { address } = await testValkey(t);
    const { origin } = await listening(
      runServer(t, ['--port', '0', '--store', address, '--idle-ttl-seconds', '1']),
    );
    const port = await freePort();
    const config = parse(read('prometheus.yaml')) as Body;
    const [scrape] = list(config.scrape_configs);
    writeFileSync(
      join(folder, 'prometheus.yaml'),
      JSON.stringify({
        global: { scrape_interval: '1s' },
        scrape_configs: [
          { job_name: scrape.job_name, static_configs: [{ targets: [new URL(origin).host] }] },
        ],
      }),
    );
    const prometheus = spawn(
      'prometheus',
      [
        `--config.file=${join(folder, 'prometheus.yaml')}`,
        `--storage.tsdb.path=${join(folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ],
      { stdio: 'ignore' },
    );
    t.teardown(async () => {
      prometheus.kill('SIGKILL');
      await new Promise(resolve => prometheus.once('close', resolve));
      rmSync(folder, { recursive: true, force: true });
    });
    const post = (path: string, body: unknown) =>
      fetch(`${origin}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    const play = async () => {
      const opened = (await (
        await post('/v1/sessions', { env_id: 'FrozenLake-v0', seed: 1 })
      ).json()) as Body;
      await post(`/v1/sessions/${opened.session_id}/step`, { action: 1 });
      await post('/v1/sessions/none/step', { action: 1 });
    };
    const ask = async (query: string): Promise<Body> => {
      const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(query)}`;
      try {
        return (await (await fetch(url)).json()) as Body;
      } catch {
        return { status: 'starts', data: { result: [] } } as unknown as Body;
      }
    };
    /** Without its comparison, and with refusals in place of faults: those series are there without trouble. */
    const seriesOf = (query: string) => query.replace(/\s*(==|>)[\s\S]*$/, '').replace('5xx', '4xx');
    for (const [name, query] of queries()) {
      await until(async () => {
        await play();
        const { status, data } = await ask(seriesOf(query));
        if (String(status) === 'error') return true;
        return list(data.result).length > 0;
      }, SELDOM_MS);
      t.equal(String((await ask(query)).status), 'success', `${name}: ${query}`);
    }
  },
);
