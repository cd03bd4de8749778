import { Type } from '../../../shared/schema/type.ts';
import { PROBLEMS } from '../../problems.ts';

export const ProblemSchema = Type.Object(
  {
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer(),
    detail: Type.String(),
    code: Type.Unsafe<keyof typeof PROBLEMS>({ type: 'string', enum: Object.keys(PROBLEMS) }),
    retryable: Type.Boolean({ description: 'The same request may succeed later.' }),
    trace_id: Type.String(),
    retry_after_s: Type.Optional(Type.Number()),
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          pointer: Type.String({ description: 'JSON pointer into the request.' }),
          detail: Type.String(),
        }),
      ),
    ),
  },
  { title: 'Problem', description: 'RFC 9457 problem document.' },
);
