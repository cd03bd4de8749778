/** What a policy can run on; `auto` takes a GPU for models that are faster there. */
export const RUNTIME_CHOICES = ['onnx', 'webgpu', 'auto'] as const;
export type RuntimeChoice = (typeof RUNTIME_CHOICES)[number];
export type RuntimeKind = Exclude<RuntimeChoice, 'auto'>;

/** Of the factors of a policy's products; everything else is float32. */
export const PRECISIONS = ['float32', 'float16'] as const;
export type Precision = (typeof PRECISIONS)[number];

/** Memory that the sessions of a runtime on the processor take together, values of a run aside, unless told otherwise. */
export const SESSIONS_BYTES = 2 ** 28;
