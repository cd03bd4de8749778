/**
 * Settings for making and sending spans, from the standard variables
 * (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables).
 */
export interface TracingSettings {
  readonly sampler: { readonly name: SamplerName; readonly ratio: number };
  /** Milliseconds between batches. */
  readonly delayMs: number | undefined;
  readonly timeoutMs: number | undefined;
  readonly mostQueued: number | undefined;
  readonly mostInBatch: number | undefined;
}

const SAMPLERS = [
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
  'always_on',
  'always_off',
  'traceidratio',
] as const;
type SamplerName = (typeof SAMPLERS)[number];

const EXPORTERS = ['otlp', 'none'] as const;
/** Every collector that supports OTLP over HTTP accepts this. */
const PROTOCOLS = ['http/protobuf'] as const;

type Variables = { readonly [name: string]: string | undefined };

/**
 * Reads the variables.
 * @returns undefined unless an endpoint or `OTEL_TRACES_EXPORTER=otlp` turns tracing on
 * @throws Error naming the variable and its allowed values
 */
export function readTracingSettings(variables: Variables): TracingSettings | undefined {
  const endpoint = variables.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT || variables.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (variables.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return undefined;
  if (!endpoint && !variables.OTEL_TRACES_EXPORTER) return undefined;
  if (choice(variables, 'OTEL_TRACES_EXPORTER', EXPORTERS) === 'none') return undefined;
  choice(variables, 'OTEL_EXPORTER_OTLP_PROTOCOL', PROTOCOLS);
  choice(variables, 'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL', PROTOCOLS);
  if (endpoint && !URL.canParse(endpoint)) {
    throw new Error(
      `OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://localhost:4318, got "${endpoint}"`,
    );
  }
  return {
    sampler: {
      name: choice(variables, 'OTEL_TRACES_SAMPLER', SAMPLERS),
      ratio: number(variables, 'OTEL_TRACES_SAMPLER_ARG', 1) ?? 1,
    },
    delayMs: number(variables, 'OTEL_BSP_SCHEDULE_DELAY'),
    timeoutMs: number(variables, 'OTEL_BSP_EXPORT_TIMEOUT'),
    mostQueued: number(variables, 'OTEL_BSP_MAX_QUEUE_SIZE'),
    mostInBatch: number(variables, 'OTEL_BSP_MAX_EXPORT_BATCH_SIZE'),
  };
}

/** The first choice where the variable is not set. */
function choice<T extends string>(variables: Variables, name: string, choices: readonly T[]): T {
  const value = variables[name] || choices[0];
  const found = choices.find(one => one === value);
  if (found === undefined) throw new Error(`${name} must be one of ${choices.join(', ')}, got "${value}"`);
  return found;
}

function number(variables: Variables, name: string, most = Number.POSITIVE_INFINITY): number | undefined {
  const text = variables[name];
  if (!text) return undefined;
  const value = Number(text);
  if (!(value >= 0 && value <= most)) {
    throw new Error(
      `${name} must be a number from 0${most < Number.POSITIVE_INFINITY ? ` to ${most}` : ''}, got "${text}"`,
    );
  }
  return value;
}
