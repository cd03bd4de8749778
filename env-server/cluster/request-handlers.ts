import type { FastifyInstance, InjectOptions } from 'fastify';
import type { Logger } from 'pino';
import type { Registry } from 'prom-client';
import type { Registrations } from '../custom/registrations/registrations.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import type { Dispatcher } from '../operations/dispatch/dispatcher.ts';
import { newCall, run } from '../operations/dispatch/execute.ts';
import type { ForwardedRequest } from '../operations/dispatch/sibling-workers.ts';
import { type CardQuestion, cardsHere } from '../operations/sessions/cards.ts';
import { type ListQuestion, listHere } from '../operations/sessions/list.ts';
import { Problem } from '../problems.ts';
import type { WorkerRequestHandlers } from './worker-channels.ts';

export interface RequestHandlerParts {
  readonly server: FastifyInstance;
  readonly dispatcher: Dispatcher;
  readonly registrations: Registrations;
  readonly metrics: Registry;
  readonly log: Logger;
}

/** What a process answers to the others that serve together with it. */
export function requestHandlers({
  server,
  dispatcher,
  registrations,
  metrics,
  log,
}: RequestHandlerParts): WorkerRequestHandlers {
  const { services } = dispatcher;
  const { sessions } = services;
  /** When the sessions of an earlier process are there. */
  const resumed = <T>(answer: () => T): MaybePromise<T> =>
    sessions.resumption ? sessions.resumption.then(answer) : answer();
  return {
    deliver: reply => sessions.deliver(reply),
    operation({ operation, principal, request, input }) {
      const compiled = dispatcher.find(operation);
      const call = newCall(services, principal, undefined, request);
      return chain(run(services, call, compiled.operation, input), value => compiled.serialize(value));
    },
    topic(topic, payload) {
      switch (topic) {
        case 'list':
          return resumed(() => listHere(services, payload as ListQuestion));
        case 'cards':
          return resumed(() => cardsHere(services, payload as CardQuestion));
        case 'sessions_of':
          return resumed(() => services.catalog.sessionsOf(payload as string));
        case 'refresh':
          return registrations.refresh();
        case 'metrics':
          return metrics.getMetricsAsJSON();
        case 'http':
          return inject(server, payload as ForwardedRequest);
      }
    },
    failed(error) {
      const cause = error instanceof Problem ? error.cause : error;
      if (cause !== undefined) log.error({ err: cause }, 'what another process asked for failed');
    },
  };
}

async function inject(server: FastifyInstance, { method, url, headers, body }: ForwardedRequest) {
  const reply = await server.inject({ method, url, headers, payload: body } as InjectOptions);
  return { status: reply.statusCode, headers: reply.headers, body: reply.body };
}
