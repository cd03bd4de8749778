import { Type } from '../../../shared/schema/type.ts';

/** Replies repeat it. */
const MAX_ID_LENGTH = 1024;

/** Schema of a frame id. */
export const FrameIdSchema = Type.Union([Type.String({ maxLength: MAX_ID_LENGTH }), Type.Integer()]);
