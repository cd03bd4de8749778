import type { FastifyInstance } from 'fastify';
import { VERSION } from '../../../shared/program.ts';
import type { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { Problem } from '../../problems.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import { resuming } from '../../stages/stages.ts';

const RETRY_AFTER_SECONDS = 5;

/** Health, readiness and metrics. */
export function addHealth(
  app: FastifyInstance,
  sessions: SessionManager,
  persistence: PersistenceHealth,
  metrics: () => Promise<{ readonly type: string; readonly text: string }>,
): void {
  const alive = { status: 'ok', version: VERSION };
  app.get('/livez', (_request, reply) => reply.send(alive));
  app.get('/readyz', (_request, reply) => {
    if (sessions.shutdown.draining) {
      throw new Problem('draining', 'the server is shutting down', {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    if (sessions.resumption) throw resuming();
    if (sessions.recorder?.isShared) sessions.recorder.requireRoom();
    const problem = persistence.problem();
    if (problem) throw problem;
    return reply.send({ ...alive, persistence: persistence.report() });
  });
  app.get('/metrics', async (request, reply) => {
    if (!request.principal.scopes.has('admin')) {
      throw new Problem('forbidden', 'metrics need a token with the scope admin');
    }
    const { type, text } = await metrics();
    return reply.type(type).send(text);
  });
}
