import { Type } from 'typebox';
import { chain } from '../../environments/core/maybe-promise.ts';
import { runBatch } from '../../operations/dispatch/batch.ts';
import type { Dispatcher } from '../../operations/dispatch/dispatcher.ts';
import { newCall } from '../../operations/dispatch/execute.ts';
import { textForm } from '../../operations/dispatch/reply-form.ts';
import { compileCheck } from '../../operations/dispatch/validation.ts';
import { RequestKey } from '../../operations/schemas/fields.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { encodeText } from '../replies/texts.ts';
import { inputOf, JSON_TYPE, OK, type RestRoute } from './route.ts';

const BATCH_SHAPE = '{"items": [{"op": "step", "session_id": "…", "action": …}, …]}';
const BATCH_EXAMPLE = [{ op: 'step', session_id: '…', action: 'Up' }];
const checkBatch = compileCheck(
  Type.Object(
    {
      items: Type.Array(Type.Unknown(), { minItems: 1, examples: [BATCH_EXAMPLE] }),
      wait: Type.Optional(Type.Integer({ minimum: 1 })),
      request_key: Type.Optional(RequestKey),
    },
    { additionalProperties: false },
  ),
  'batch',
);

/** `POST /v1/batch`. */
export function batchRoute(
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
  mostItems: number,
): RestRoute {
  return {
    method: 'POST',
    url: '/v1/batch',
    revalidated: false,
    run({ body, key, principal, trace, traceId }) {
      const input = inputOf(body, ['request_key'], BATCH_SHAPE);
      if (key !== undefined) input.request_key = key;
      checkBatch(input);
      const batch = {
        items: input.items as unknown[],
        wait: input.wait as number | undefined,
        requestKey: input.request_key as string | undefined,
        mostItems,
        problem: (error: unknown, sessionId: unknown) =>
          problemHandler.document(error, { traceId, sessionId }),
      };
      const call = newCall(dispatcher.services, principal, trace);
      return chain(runBatch(dispatcher, call, batch, textForm), pieces => ({
        status: OK,
        contentType: JSON_TYPE,
        body: encodeText([...pieces, '\n']),
      }));
    },
  };
}
