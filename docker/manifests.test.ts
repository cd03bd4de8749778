import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import t from 'tap';
import type { TSchema } from 'typebox';
import { Value } from 'typebox/value';
import { type CollectionTag, parse, parseAllDocuments } from 'yaml';
import { DECLARATIONS, DEFAULT_SETTINGS, type Settings, variableOf } from '../env-server/config/settings.ts';
import { NetworkGuard } from '../env-server/custom/remote/network.ts';
import { storeAddressOf } from '../env-server/store/address.ts';
import { Authenticator } from '../env-server/transports/access/auth.ts';
import type { Body } from '../test/app.test-data.ts';
import { lacksPython, PYTHON } from '../test/python.test-data.ts';
import { exists, lastStage, ROOT, said, variablesOf } from './images.test-data.ts';
import { Compose, ComposeReplicas, KINDS } from './manifest-schema.test-data.ts';

/** Seconds that the server takes to close after its last operation; see env-server/main.ts. */
const CLOSE_S = 10;
/** Variables of the trainer and of the files here, and the server's file; its others are made from its settings. */
const OTHER_VARIABLES = [
  'RAGEN_CONFIG',
  'RAGEN_TOKEN',
  'RAGEN_RUN',
  'RAGEN_TOKEN_SHA256',
  'RAGEN_RECIPE',
  'RAGEN_STORE_PASSWORD',
  'RAGEN_STORE_MEMORY',
  'RAGEN_REPLICAS',
  'RAGEN_HEADER_KEY',
];

const settingOf = new Map(
  (Object.keys(DECLARATIONS) as (keyof typeof DECLARATIONS)[]).map(name => [variableOf(name), name]),
);

const read = (path: string): string => readFileSync(`${ROOT}${path}`, 'utf8');

const manifests = readdirSync(`${ROOT}docker/kubernetes`).filter(name => name.endsWith('.yaml'));
const objects = manifests
  .filter(name => name !== 'kustomization.yaml')
  .flatMap(name =>
    parseAllDocuments(read(`docker/kubernetes/${name}`)).map(document => document.toJS() as Body),
  );

function one(kind: string, name: string): Body {
  const found = objects.find(object => String(object.kind) === kind && String(object.metadata.name) === name);
  if (!found) throw new Error(`there is no ${kind} ${name}`);
  return found;
}

const list = (value: Body): Body[] => value as unknown as Body[];
const faults = (schema: TSchema, value: unknown) =>
  [...Value.Errors(schema, value)].map(error => `${error.instancePath} ${error.message}`);

/** A setting as a file sets it, or its default. */
function setting(variables: Body, name: keyof Settings): number {
  return Number(variables[variableOf(name)] ?? DEFAULT_SETTINGS[name]);
}

t.test('compose: of the right form, with a healthy server before its trainer', async t => {
  const compose = parse(read('docker/compose.yaml')) as Body;
  t.same(faults(Compose, compose), []);
  const { 'env-server': server, trainer } = compose.services;
  t.ok(server.healthcheck);
  t.match(trainer.depends_on, { 'env-server': { condition: 'service_healthy' } });
  for (const [image, service] of [
    ['env-server', server],
    ['trainer', trainer],
  ] as const) {
    t.equal(service.build.context as unknown, '..');
    t.equal(service.build.dockerfile as unknown, `docker/${image}.Dockerfile`);
    t.ok(exists(`docker/${image}.Dockerfile`));
    const places = list(service.volumes).map(volume => String(volume).split(':')[1]);
    t.same(places, said(lastStage(image), 'VOLUME'), 'what is to last is in volumes');
    for (const volume of list(service.volumes)) t.ok(String(volume).split(':')[0] in compose.volumes);
  }
  const grace = Number.parseInt(String(server.stop_grace_period), 10);
  const { environment } = server;
  const needed = setting(environment, 'drainSeconds') + setting(environment, 'graceSeconds') + CLOSE_S;
  t.ok(grace >= needed, `${grace} s to stop, ${needed} s needed`);
});

t.test('compose: the tokens it makes are those the server reads', async t => {
  const compose = parse(read('docker/compose.yaml')) as Body;
  const tokens = String(compose.services['env-server'].environment.RAGEN_TOKENS);
  const digest = 'ab'.repeat(32);
  const given = tokens.replace(/\$\{RAGEN_TOKEN_SHA256:\?[^}]*\}/, digest);
  t.ok(new Authenticator(given).required);
  t.match(String(compose.services.trainer.environment.RAGEN_TOKEN), /^\$\{RAGEN_TOKEN:\?/);
});

/** Compose's tag for a list that replaces the other file's. */
const override: CollectionTag = { tag: '!override', collection: 'seq' };

t.test('compose: servers share one store, which keeps its data and starts first', async t => {
  const compose = parse(read('docker/compose.yaml')) as Body;
  const more = parse(read('docker/compose.replicas.yaml'), { customTags: [override] }) as Body;
  t.same(faults(ComposeReplicas, more), []);
  const { store, 'env-server': server } = more.services;
  const { options } = storeAddressOf(String(server.environment.RAGEN_STORE), {});
  t.equal(options.host, 'store');
  t.equal(options.port, 6379);
  t.match(server.depends_on, { store: { condition: 'service_healthy' } });
  t.match(list(store.command).join(' '), /--appendonly yes --appendfsync everysec/);
  t.equal(String(list(store.volumes)[0]).split(':')[0] in more.volumes, true);
  t.equal(String(server.environment.RAGEN_HEADER_KEY_FILE), `/run/secrets/${list(server.secrets)[0]}`);
  t.equal(String(server.environment.RAGEN_DATA), '', 'nothing is in a folder');
  t.notSame(server.ports, compose.services['env-server'].ports);
});

t.test('options: what scales by sessions scales the same servers in the same bounds', async t => {
  const usual = one('HorizontalPodAutoscaler', 'ragen-env-server').spec;
  const adapter = parse(read('docker/kubernetes/options/prometheus-adapter.yaml')) as Body;
  t.same(faults(KINDS.HorizontalPodAutoscaler, adapter), []);
  for (const key of ['scaleTargetRef', 'minReplicas', 'maxReplicas']) t.same(adapter.spec[key], usual[key]);
  const scaled = parse(read('docker/kubernetes/options/keda.yaml')) as Body;
  t.same(faults(KINDS.ScaledObject, scaled), []);
  const names = list(adapter.spec.metrics).map(({ pods }) => String(pods.metric.name));
  const queries = list(scaled.spec.triggers).map(({ metadata }) => String(metadata.query));
  for (const [i, name] of names.entries()) t.ok(queries[i].includes(name), name);
  const { scaleTargetRef, minReplicas, maxReplicas } = one(
    'HorizontalPodAutoscaler',
    'ragen-env-server',
  ).spec;
  t.same(scaled.spec.scaleTargetRef, scaleTargetRef);
  t.equal(scaled.spec.minReplicaCount, minReplicas);
  t.equal(scaled.spec.maxReplicaCount, maxReplicas);
});

t.test('options: Sentinel takes the place of the one Valkey, under its names', async t => {
  const more = parseAllDocuments(read('docker/kubernetes/options/sentinel.yaml')).map(
    document => document.toJS() as Body,
  );
  for (const object of more) t.same(faults(KINDS[String(object.kind)], object), [], String(object.kind));
  const named = (kind: string) => more.find(object => String(object.kind) === kind)!;
  for (const kind of ['Service', 'StatefulSet', 'NetworkPolicy']) {
    t.equal(named(kind).metadata.name, one(kind, 'ragen-valkey').metadata.name);
  }
  const { spec } = named('StatefulSet');
  t.same(spec.template.metadata.labels, one('StatefulSet', 'ragen-valkey').spec.template.metadata.labels);
  const image = list(one('StatefulSet', 'ragen-valkey').spec.template.spec.containers)[0].image;
  for (const container of list(spec.template.spec.containers)) t.equal(container.image, image);
  const [, address] = /RAGEN_STORE: (\S+)/.exec(read('docker/kubernetes/options/sentinel.yaml'))!;
  const { options } = storeAddressOf(address, {});
  t.equal(options.name, 'ragen');
  t.equal(options.sentinels?.length, Number(spec.replicas));
  const ports = list(list(one('NetworkPolicy', 'ragen-env-server').spec.egress)[0].ports);
  t.same(
    ports.map(({ port }) => String(port)),
    list(named('Service').spec.ports).map(({ name }) => String(name)),
  );
});

t.test('kubernetes: every object follows its schema', async t => {
  t.ok(objects.length > 6);
  for (const object of objects) {
    const schema = KINDS[String(object.kind)];
    t.same(schema ? faults(schema, object) : ['unknown kind'], [], `${object.kind} ${object.metadata.name}`);
  }
});

t.test('kubernetes: every reference has its object', async t => {
  const set = one('Deployment', 'ragen-env-server').spec;
  const job = one('Job', 'ragen-trainer').spec;
  const labels = set.template.metadata.labels;
  t.same(set.selector.matchLabels, labels);
  t.same(one('PodDisruptionBudget', 'ragen-env-server').spec.selector.matchLabels, labels);
  const service = one('Service', 'ragen-env-server').spec;
  t.same(service.selector, labels);
  t.match(list(service.ports), [{ port: 8080, targetPort: 'http' }]);
  t.notOk('sessionAffinity' in service, 'any server serves any session');
  const {
    scaleTargetRef: scaled,
    minReplicas,
    maxReplicas,
  } = one('HorizontalPodAutoscaler', 'ragen-env-server').spec;
  one(String(scaled.kind), String(scaled.name));
  t.ok(Number(maxReplicas) > Number(minReplicas));
  const secret = one('Secret', 'ragen-tokens').stringData;
  for (const [pod, lasting] of [
    [set.template.spec, []],
    [job.template.spec, said(lastStage('trainer'), 'VOLUME')],
  ] as const) {
    const volumes = list(pod.volumes).map(volume => String(volume.name));
    const [container] = list(pod.containers);
    const mounts = list(container.volumeMounts);
    t.same(mounts.map(mount => String(mount.name)).sort(), volumes.sort());
    const image = String(container.name) as 'env-server' | 'trainer';
    t.equal(String(container.image), `ragen-${image}`);
    for (const path of lasting)
      t.ok(
        mounts.some(mount => String(mount.mountPath) === path),
        `${path} is a volume`,
      );
  }
  const [env] = list(set.template.spec.containers);
  one('ConfigMap', String(list(env.envFrom)[0].configMapRef.name));
  t.match(list(env.ports), [{ name: 'http', containerPort: Number(variablesOf('env-server').RAGEN_PORT) }]);
  for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe']) {
    t.equal(String(env[probe].httpGet.port), 'http');
    t.match(String(env[probe].httpGet.path), probe === 'readinessProbe' ? '/readyz' : '/livez');
  }
  const [trainer] = list(job.template.spec.containers);
  const token = list(trainer.env).find(variable => String(variable.name) === 'RAGEN_TOKEN')!.valueFrom
    .secretKeyRef;
  t.ok(String(token.key) in secret);
  const tokens = list(set.template.spec.volumes).find(volume => String(volume.name) === 'tokens')!.secret;
  t.ok(String(list(tokens.items)[0].key) in secret);
  const mounted = list(env.volumeMounts).find(mount => String(mount.name) === 'tokens')!;
  t.equal(
    `${mounted.mountPath}/${list(tokens.items)[0].path}`,
    String(one('ConfigMap', 'ragen-env-server').data.RAGEN_TOKENS),
  );
  const [, address] = /url: "http:\/\/([\w-]+):8080"/.exec(String(list(trainer.args))) ?? [];
  one('Service', String(address));
});

t.test('kubernetes: servers share a store that keeps what it has, and reach it', async t => {
  const { data } = one('ConfigMap', 'ragen-env-server');
  const { options } = storeAddressOf(String(data.RAGEN_STORE), {});
  const { spec } = one('StatefulSet', 'ragen-valkey');
  const service = one('Service', String(spec.serviceName));
  t.equal(options.host as unknown, service.metadata.name as unknown);
  t.equal(options.port, Number(list(service.spec.ports)[0].port));
  t.equal(String(data.RAGEN_DATA), '', 'nothing is in a folder');
  const [valkey] = list(spec.template.spec.containers);
  t.match(list(valkey.args).join(' '), /--appendonly yes --appendfsync everysec/);
  t.match(list(valkey.volumeMounts), [
    { name: list(spec.volumeClaimTemplates)[0].metadata.name, mountPath: '/data' },
  ]);
  const policy = one('NetworkPolicy', 'ragen-valkey').spec;
  t.same(policy.podSelector.matchLabels, spec.template.metadata.labels);
  const [toStore] = list(one('NetworkPolicy', 'ragen-env-server').spec.egress);
  t.same(list(toStore.to)[0].podSelector, policy.podSelector);
  const secret = one('Secret', 'ragen-tokens').stringData;
  const { items } = list(one('Deployment', 'ragen-env-server').spec.template.spec.volumes)[0].secret;
  for (const { key } of list(items)) t.ok(String(key) in secret, String(key));
  t.match(String(data.RAGEN_HEADER_KEY_FILE), /^\/etc\/ragen\/headers.key$/);
});

t.test('kubernetes: pods reach, and are reached by, what they need only', async t => {
  const labelsOf = (policy: Body) => policy.spec.podSelector.matchLabels;
  const [server, trainer] = ['ragen-env-server', 'ragen-trainer'].map(name => one('NetworkPolicy', name));
  const set = one('Deployment', 'ragen-env-server').spec.template;
  const job = one('Job', 'ragen-trainer').spec.template;
  t.same(labelsOf(server), set.metadata.labels);
  t.same(labelsOf(trainer), job.metadata.labels);
  t.match(list(list(server.spec.ingress)[0].from)[0].podSelector.matchLabels, labelsOf(trainer));
  t.notOk('ingress' in trainer.spec);
  const [, toServers] = list(trainer.spec.egress);
  t.same(list(toServers.to)[0].podSelector.matchLabels, labelsOf(server));
  for (const { ports } of [list(server.spec.ingress)[0], toServers]) {
    t.equal(String(list(ports)[0].port), String(list(list(set.spec.containers)[0].ports)[0].name));
  }
  const [, , outside] = list(server.spec.egress);
  const { cidr, except } = list(outside.to)[0].ipBlock;
  t.equal(String(cidr), '0.0.0.0/0');
  const guard = new NetworkGuard({ remoteHosts: '*', remoteNetworks: '' });
  for (const network of list(except)) {
    const address = String(network).split('/')[0].replace(/\.0$/, '.1');
    t.throws(() => guard.checkUrl(new URL(`http://${address}`)), `the server refuses ${network}, too`);
  }
});

t.test('kubernetes: times fit together', async t => {
  const { data } = one('ConfigMap', 'ragen-env-server');
  const pod = one('Deployment', 'ragen-env-server').spec.template.spec;
  const grace = Number(pod.terminationGracePeriodSeconds);
  const needed = setting(data, 'drainSeconds') + setting(data, 'graceSeconds') + CLOSE_S;
  t.ok(grace >= needed, `${grace} s to stop, ${needed} s needed`);
  const { readinessProbe } = list(pod.containers)[0];
  const unready = Number(readinessProbe.periodSeconds) * Number(readinessProbe.failureThreshold);
  t.ok(setting(data, 'drainSeconds') > unready, 'it serves until it is seen to be not ready');
});

t.test('kubernetes: the example of a secret is refused, and its file has the form that is read', async t => {
  const example = String(one('Secret', 'ragen-tokens').stringData['tokens.json']);
  t.throws(() => new Authenticator(example), /sha256/);
  t.ok(new Authenticator(example.replace(/SHA-256[^"]*/, 'ab'.repeat(32))).required);
});

t.test('variables are ones that the programs read, with values they take', async t => {
  const files = [
    'docker/compose.yaml',
    'docker/compose.replicas.yaml',
    'docs/how-to/deployment.md',
    'docker/trainer.sh',
  ];
  const dockerfiles = ['env-server', 'trainer'].map(image => `docker/${image}.Dockerfile`);
  const kubernetes = manifests.map(name => `docker/kubernetes/${name}`);
  for (const file of [...files, ...dockerfiles, ...kubernetes]) {
    for (const [name] of read(file).matchAll(/RAGEN_[A-Z0-9_]+/g)) {
      t.ok(settingOf.has(name) || OTHER_VARIABLES.includes(name), `${file}: ${name}`);
    }
  }
  const compose = parse(read('docker/compose.yaml')) as Body;
  for (const variables of [
    one('ConfigMap', 'ragen-env-server').data,
    compose.services['env-server'].environment,
  ]) {
    for (const [variable, value] of Object.entries(variables)) {
      const { default: usual, choices } = DECLARATIONS[settingOf.get(variable)!];
      if (typeof usual === 'number') t.ok(Number(value) >= 0, `${variable}=${value}`);
      if (choices) t.ok(choices.includes(String(value)), `${variable}=${value}`);
    }
  }
});

t.test('the page names files that exist and commands as they are', async t => {
  const page = read('docs/how-to/deployment.md');
  for (const [, path] of page.matchAll(/\]\(\.\.\/\.\.\/([^)#]+)\)/g)) t.ok(exists(path), path);
  for (const [path] of page.matchAll(/\bdocker\/[\w./-]+\w/g)) t.ok(exists(path), path);
  for (const object of objects.filter(({ kind }) => String(kind) !== 'Secret')) {
    if (!['ConfigMap', 'PersistentVolumeClaim'].includes(String(object.kind))) {
      t.ok(page.includes(`\`${object.kind}\``), `explains ${object.kind}`);
    }
  }
  const grace = one('Deployment', 'ragen-env-server').spec.template.spec.terminationGracePeriodSeconds;
  t.ok(page.includes(`\`terminationGracePeriodSeconds: ${grace}\``));
});

t.test(
  'kubernetes: every object fits the schemas of Kubernetes 1.37, strictly',
  { skip: lacksPython('kubernetes_validate') },
  async t => {
    const options = ['prometheus-adapter', 'sentinel'].map(name => `options/${name}.yaml`);
    for (const name of [...manifests.filter(name => name !== 'kustomization.yaml'), ...options]) {
      const args = [
        '-m',
        'kubernetes_validate',
        '-k',
        '1.37',
        '--strict',
        `${ROOT}docker/kubernetes/${name}`,
      ];
      const { status, stdout, stderr } = spawnSync(PYTHON, args, { encoding: 'utf8' });
      t.equal(status, 0, `${name}: ${stdout}${stderr}`);
    }
  },
);

const kustomize = spawnSync('kubectl', ['kustomize', `${ROOT}docker/kubernetes`], { encoding: 'utf8' });
t.test(
  'kustomize puts the objects together',
  { skip: kustomize.error ? 'needs kubectl' : false },
  async t => {
    t.equal(kustomize.status, 0, kustomize.stderr);
    const made = parseAllDocuments(kustomize.stdout).map(document => document.toJS() as Body);
    t.equal(made.length, objects.length - 1, 'all but the example of a secret');
  },
);

const hasCompose = spawnSync('docker', ['compose', 'version']).status === 0;
t.test('docker compose reads its file', { skip: hasCompose ? false : 'needs docker compose' }, async t => {
  const env = {
    ...process.env,
    RAGEN_TOKEN: 'x',
    RAGEN_TOKEN_SHA256: 'ab'.repeat(32),
    RAGEN_HEADER_KEY: 'cd'.repeat(32),
  };
  const base = ['compose', '-f', `${ROOT}docker/compose.yaml`];
  for (const more of [[], ['-f', `${ROOT}docker/compose.replicas.yaml`]]) {
    const { status, stderr } = spawnSync('docker', [...base, ...more, 'config', '--quiet'], {
      encoding: 'utf8',
      env,
    });
    t.equal(status, 0, stderr);
  }
});
