import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Capacity } from './capacity.ts';
import type { Models } from './models.ts';
import type { CompletionEnd } from './openai/routes.ts';

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Metrics of `GET /metrics`, for Prometheus. */
export class ServeMetrics {
  readonly registry = new Registry();
  readonly #requests: Counter<'route' | 'model' | 'outcome'>;
  readonly #promptTokens: Counter<'model'>;
  readonly #completionTokens: Counter<'model'>;
  readonly #seconds: Histogram<'route'>;
  readonly #firstToken: Histogram<'route'>;

  constructor(models: Models, capacity: Capacity) {
    const registers = [this.registry];
    this.#requests = new Counter({
      name: 'ragen_serve_requests_total',
      help: 'Completion requests by route, model and outcome (finished, failed, aborted by the client)',
      labelNames: ['route', 'model', 'outcome'],
      registers,
    });
    this.#promptTokens = new Counter({
      name: 'ragen_serve_prompt_tokens_total',
      help: 'Tokens of prompts',
      labelNames: ['model'],
      registers,
    });
    this.#completionTokens = new Counter({
      name: 'ragen_serve_completion_tokens_total',
      help: 'Tokens sampled',
      labelNames: ['model'],
      registers,
    });
    this.#seconds = new Histogram({
      name: 'ragen_serve_request_seconds',
      help: 'Time from a request to the end of its reply',
      labelNames: ['route'],
      buckets: SECONDS,
      registers,
    });
    this.#firstToken = new Histogram({
      name: 'ragen_serve_first_token_seconds',
      help: 'Time from a streamed request to its first token',
      labelNames: ['route'],
      buckets: SECONDS,
      registers,
    });
    new Gauge({
      name: 'ragen_serve_open_responses',
      help: 'Responses that are being sampled or wait for it',
      registers,
      collect() {
        this.set(capacity.streams);
      },
    });
    new Gauge({
      name: 'ragen_serve_adapters',
      help: 'Adapters that are loaded',
      registers,
      collect() {
        this.set(models.all.length - 1);
      },
    });
    new Counter({
      name: 'ragen_serve_refused_total',
      help: 'Requests refused with 429',
      registers,
      collect() {
        this.reset();
        this.inc(capacity.refused);
      },
    });
  }

  observe(end: CompletionEnd): void {
    const { kind: route, model, outcome } = end;
    this.#requests.inc({ route, model, outcome });
    this.#promptTokens.inc({ model }, end.promptTokens);
    this.#completionTokens.inc({ model }, end.completionTokens);
    this.#seconds.observe({ route }, end.seconds);
    if (end.firstTokenSeconds !== undefined) this.#firstToken.observe({ route }, end.firstTokenSeconds);
  }

  /** Forgets the counts of a model that was unloaded, so that versions of a run do not pile up. */
  forget(model: string): void {
    for (const route of ['chat', 'completion']) {
      for (const outcome of ['finished', 'failed', 'aborted'])
        this.#requests.remove({ route, model, outcome });
    }
    this.#promptTokens.remove({ model });
    this.#completionTokens.remove({ model });
  }
}
