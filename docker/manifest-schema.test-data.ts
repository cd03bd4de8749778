import { type TProperties, type TSchema, Type } from 'typebox';

/**
 * The parts of Compose and Kubernetes that our files use, as closed schemas: a key that is misspelled or in the wrong place is
 * an error here, where the programs that read the files may pass over it.
 */

const closed = (properties: TProperties) => Type.Object(properties, { additionalProperties: false });
const maybe = Type.Optional;
const text = Type.String({ minLength: 1 });
const texts = Type.Array(text);
const map = (value: TSchema = text) => Type.Record(Type.String(), value);
const literal = (...values: string[]) => Type.Enum(values);
const duration = Type.String({ pattern: '^[0-9]+(s|m)$' });

/** Properties of every service. */
const service: TProperties = {
  image: text,
  command: maybe(Type.Array(Type.String())),
  environment: map(),
  user: maybe(text),
  ports: maybe(Type.Array(Type.String({ pattern: '^127\\.0\\.0\\.1:[0-9]+:[0-9]+$' }))),
  depends_on: maybe(map(closed({ condition: literal('service_healthy') }))),
  volumes: Type.Array(Type.String({ pattern: '^[a-z]+:/[a-z]+$' })),
  read_only: Type.Literal(true),
  tmpfs: Type.Array(Type.Literal('/tmp')),
  cap_drop: Type.Array(Type.Literal('ALL'), { minItems: 1 }),
  security_opt: Type.Array(Type.Literal('no-new-privileges:true'), { minItems: 1 }),
  healthcheck: maybe(
    closed({
      test: texts,
      interval: duration,
      timeout: duration,
      start_period: duration,
      retries: Type.Integer(),
    }),
  ),
  stop_grace_period: duration,
  restart: literal('unless-stopped', 'on-failure'),
};
const ComposeService = closed({ ...service, build: closed({ context: text, dockerfile: text }) });

export const Compose = closed({ name: text, services: map(ComposeService), volumes: map(Type.Null()) });

/** Additions of the file for replicas. */
export const ComposeReplicas = closed({
  services: closed({
    store: closed({ ...service, image: Type.String({ pattern: '@sha256:[0-9a-f]{64}$' }) }),
    'env-server': closed({
      environment: map(Type.String()),
      secrets: texts,
      ports: Type.Array(Type.String({ pattern: '^127\\.0\\.0\\.1:[0-9]+-[0-9]+:[0-9]+$' })),
      depends_on: map(closed({ condition: literal('service_healthy') })),
      deploy: closed({ replicas: text }),
    }),
  }),
  secrets: map(closed({ environment: text })),
  volumes: map(Type.Null()),
});

const labels = map();
const metadata = closed({ name: text, labels: maybe(labels) });
const selector = closed({ matchLabels: labels });
const storage = closed({
  accessModes: Type.Array(Type.Literal('ReadWriteOnce')),
  resources: closed({ requests: closed({ storage: text }) }),
});
const seconds = Type.Integer({ minimum: 1 });

const probe = closed({
  httpGet: closed({ path: text, port: text }),
  periodSeconds: seconds,
  timeoutSeconds: maybe(seconds),
  failureThreshold: seconds,
});

const Container = closed({
  name: text,
  image: text,
  command: maybe(texts),
  args: maybe(Type.Array(Type.String())),
  env: maybe(
    Type.Array(
      Type.Union([
        closed({ name: text, value: text }),
        closed({ name: text, valueFrom: closed({ secretKeyRef: closed({ name: text, key: text }) }) }),
        closed({ name: text, valueFrom: closed({ fieldRef: closed({ fieldPath: text }) }) }),
      ]),
    ),
  ),
  envFrom: maybe(Type.Array(closed({ configMapRef: closed({ name: text }) }))),
  ports: maybe(Type.Array(closed({ name: text, containerPort: Type.Integer() }))),
  startupProbe: maybe(probe),
  livenessProbe: maybe(probe),
  readinessProbe: maybe(probe),
  resources: closed({
    requests: closed({ cpu: text, memory: text }),
    limits: closed({ memory: text }),
  }),
  securityContext: closed({
    allowPrivilegeEscalation: Type.Literal(false),
    readOnlyRootFilesystem: Type.Literal(true),
    capabilities: closed({ drop: Type.Array(Type.Literal('ALL'), { minItems: 1 }) }),
  }),
  volumeMounts: Type.Array(closed({ name: text, mountPath: text, readOnly: maybe(Type.Boolean()) })),
});

const PodSpec = closed({
  restartPolicy: maybe(literal('OnFailure')),
  automountServiceAccountToken: Type.Literal(false),
  enableServiceLinks: Type.Literal(false),
  terminationGracePeriodSeconds: seconds,
  securityContext: closed({
    runAsNonRoot: Type.Literal(true),
    runAsUser: Type.Literal(1000),
    runAsGroup: Type.Literal(1000),
    fsGroup: Type.Literal(1000),
    seccompProfile: closed({ type: Type.Literal('RuntimeDefault') }),
  }),
  topologySpreadConstraints: maybe(
    Type.Array(
      closed({
        maxSkew: Type.Integer(),
        topologyKey: text,
        whenUnsatisfiable: literal('ScheduleAnyway', 'DoNotSchedule'),
        labelSelector: selector,
      }),
    ),
  ),
  containers: Type.Array(Container, { minItems: 1, maxItems: 2 }),
  volumes: Type.Array(
    Type.Union([
      closed({ name: text, emptyDir: closed({}) }),
      closed({
        name: text,
        secret: closed({ secretName: text, items: Type.Array(closed({ key: text, path: text })) }),
      }),
      closed({ name: text, persistentVolumeClaim: closed({ claimName: text }) }),
      closed({ name: text, configMap: closed({ name: text }) }),
    ]),
  ),
});

const template = closed({ metadata: closed({ labels }), spec: PodSpec });

const kind = (apiVersion: string, name: string, properties: TProperties) =>
  closed({ apiVersion: Type.Literal(apiVersion), kind: Type.Literal(name), metadata, ...properties });

/** Whom a network policy lets through, and on which ports. */
const peer = Type.Union([
  closed({ podSelector: selector }),
  closed({ namespaceSelector: selector }),
  closed({ ipBlock: closed({ cidr: text, except: maybe(texts) }) }),
]);
const ports = Type.Array(
  closed({ protocol: literal('TCP', 'UDP'), port: Type.Union([Type.Integer(), text]) }),
  { minItems: 1 },
);

/** Objects of Kubernetes, by kind. */
export const KINDS: { readonly [kind: string]: TSchema } = {
  ConfigMap: kind('v1', 'ConfigMap', { data: map(Type.String()) }),
  Secret: kind('v1', 'Secret', { type: Type.Literal('Opaque'), stringData: map() }),
  Service: kind('v1', 'Service', {
    spec: closed({
      clusterIP: maybe(Type.Literal('None')),
      publishNotReadyAddresses: maybe(Type.Literal(true)),
      selector: labels,
      ports: Type.Array(closed({ name: text, port: Type.Integer(), targetPort: text })),
      sessionAffinity: maybe(Type.Literal('ClientIP')),
      sessionAffinityConfig: maybe(
        closed({ clientIP: closed({ timeoutSeconds: Type.Integer({ minimum: 1, maximum: 86_400 }) }) }),
      ),
    }),
  }),
  Deployment: kind('apps/v1', 'Deployment', {
    spec: closed({ replicas: Type.Integer({ minimum: 1 }), selector, template }),
  }),
  ScaledObject: kind('keda.sh/v1alpha1', 'ScaledObject', {
    spec: closed({
      scaleTargetRef: closed({ apiVersion: text, kind: text, name: text }),
      minReplicaCount: Type.Integer({ minimum: 1 }),
      maxReplicaCount: Type.Integer({ minimum: 2 }),
      cooldownPeriod: seconds,
      fallback: closed({ failureThreshold: seconds, replicas: Type.Integer({ minimum: 1 }) }),
      triggers: Type.Array(
        closed({
          type: Type.Literal('prometheus'),
          metricType: maybe(literal('AverageValue', 'Value')),
          metadata: closed({ serverAddress: text, query: text, threshold: text }),
        }),
        { minItems: 1 },
      ),
    }),
  }),
  HorizontalPodAutoscaler: kind('autoscaling/v2', 'HorizontalPodAutoscaler', {
    spec: closed({
      scaleTargetRef: closed({ apiVersion: text, kind: text, name: text }),
      minReplicas: Type.Integer({ minimum: 1 }),
      maxReplicas: Type.Integer({ minimum: 2 }),
      behavior: maybe(closed({ scaleDown: closed({ stabilizationWindowSeconds: seconds }) })),
      metrics: Type.Array(
        Type.Union([
          closed({
            type: Type.Literal('Resource'),
            resource: closed({
              name: text,
              target: closed({ type: Type.Literal('Utilization'), averageUtilization: Type.Integer() }),
            }),
          }),
          closed({
            type: Type.Literal('Pods'),
            pods: closed({
              metric: closed({ name: text }),
              target: closed({ type: Type.Literal('AverageValue'), averageValue: text }),
            }),
          }),
        ]),
        { minItems: 1 },
      ),
    }),
  }),
  StatefulSet: kind('apps/v1', 'StatefulSet', {
    spec: closed({
      serviceName: text,
      replicas: Type.Integer({ minimum: 1 }),
      podManagementPolicy: literal('Parallel', 'OrderedReady'),
      selector,
      template,
      volumeClaimTemplates: Type.Array(closed({ metadata: closed({ name: text }), spec: storage })),
    }),
  }),
  PodDisruptionBudget: kind('policy/v1', 'PodDisruptionBudget', {
    spec: closed({ maxUnavailable: Type.Integer(), selector }),
  }),
  NetworkPolicy: kind('networking.k8s.io/v1', 'NetworkPolicy', {
    spec: closed({
      podSelector: selector,
      policyTypes: Type.Array(literal('Ingress', 'Egress'), { minItems: 2, maxItems: 2 }),
      ingress: maybe(Type.Array(closed({ from: Type.Array(peer, { minItems: 1 }), ports }))),
      egress: maybe(Type.Array(closed({ to: Type.Array(peer, { minItems: 1 }), ports }))),
    }),
  }),
  PersistentVolumeClaim: kind('v1', 'PersistentVolumeClaim', { spec: storage }),
  Job: kind('batch/v1', 'Job', {
    spec: closed({ backoffLimit: Type.Integer(), template }),
  }),
};
